// The floating-point mode all kernels run in. Internal to cpu_adam.
#pragma once
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace sluice::cpu_adam {

// Sets MXCSR of the calling thread to its default (round to nearest, subnormals kept, exceptions masked) for
// one scope: a library may have left flush-to-zero on, which changes results near 1e-38.
class FloatModeScope {
 public:
#if defined(__SSE2__)
  FloatModeScope() : saved_(_mm_getcsr()) {
    _mm_setcsr(0x1f80);
  }
  ~FloatModeScope() {
    _mm_setcsr(saved_);
  }
#else
  FloatModeScope() = default;
#endif
  FloatModeScope(const FloatModeScope&) = delete;
  FloatModeScope& operator=(const FloatModeScope&) = delete;

 private:
#if defined(__SSE2__)
  unsigned saved_;
#endif
};

}  // namespace sluice::cpu_adam
