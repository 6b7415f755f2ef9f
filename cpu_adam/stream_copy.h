// A copy whose target is not read again soon: written past the caches, without first reading what is there. Internal to cpu_adam.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace sluice::cpu_adam {

inline void stream_copy(const void* from, void* to, size_t bytes) {
#if defined(__SSE2__)
  constexpr size_t kLine = 64;
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(target) % kLine) % kLine), lines = (bytes - head) / kLine;
  std::memcpy(target, source, head);
  source += head, target += head;
  for (size_t i = 0; i < lines; ++i, source += kLine, target += kLine)
    for (size_t j = 0; j < kLine; j += sizeof(__m128i))
      _mm_stream_si128(reinterpret_cast<__m128i*>(target + j), _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + j)));
  _mm_sfence();
  std::memcpy(target, source, bytes - head - lines * kLine);
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace sluice::cpu_adam
