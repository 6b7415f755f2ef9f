#include "base/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/topology.h"
#include "base/units.h"

namespace sluice::base {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2 << 20;

}  // namespace

Arena::Arena(size_t bytes, std::string purpose) : size_(round_up(bytes, kPage)), purpose_(std::move(purpose)) {
  if (size_ == 0) return;
  if (const uint64_t have = available_host_memory(); size_ > have)
    fail(ErrorKind::host_memory, "no room in RAM for {}: need {}, have {}. Lower memory.host or execution.pools, or move a tier to nvme",
         purpose_, format_bytes(size_), format_bytes(have));
  mapping_bytes_ = size_ + kHugePage;
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    fail(ErrorKind::host_memory, "mmap of {} for {} failed: {}", format_bytes(size_), purpose_, std::strerror(errno));
  }
  data_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(mapping_), kHugePage));
  madvise(data_, size_, MADV_HUGEPAGE);
  madvise(data_, size_, MADV_DONTFORK);
  interleave_over_nodes(data_, size_);  // else all of it would be the node's of the thread that touches it first
  for (size_t i = 0; i < size_; i += kPage) data_[i] = std::byte{0};
}

Arena::~Arena() { unmap(); }

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)),
      purpose_(std::move(other.purpose_)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    unmap();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    mapping_ = std::exchange(other.mapping_, nullptr);
    mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
    purpose_ = std::move(other.purpose_);
  }
  return *this;
}

void Arena::unmap() noexcept {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

std::span<std::byte> Arena::span(size_t offset, size_t bytes) const {
  SLUICE_CHECK(offset <= size_ && bytes <= size_ - offset, purpose_);
  return {data_ + offset, bytes};
}

uint64_t available_host_memory() {
  uint64_t available = std::numeric_limits<uint64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  for (uint64_t value = 0; meminfo >> key >> value;) {
    if (key == "MemAvailable:") available = value * 1024;
    std::getline(meminfo, unit);
  }
  return std::min(available, read_cgroup_limits().memory_available.value_or(available));
}

}  // namespace sluice::base
