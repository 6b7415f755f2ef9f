#include "gpu/tensor_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "base/budget.h"
#include "base/error.h"
#include "base/units.h"
#include "gpu/tensor_account.h"

namespace sluice::gpu {
namespace {

using namespace base;

constexpr size_t kHuge = 2_MiB;
constexpr uint64_t kAlwaysCached = 256_MiB;

// Classes 0..7 are multiples of 128 bytes; above 1 KiB each power of two has eight.
size_t class_of(size_t bytes) {
  const size_t last = bytes - 1;
  if (last < 1024) return last / 128;
  const auto log = static_cast<size_t>(std::bit_width(last) - 1);
  return 8 * (log - 9) + (last >> (log - 3)) - 8;
}

size_t class_bytes(size_t size_class) {
  if (size_class < 8) return (size_class + 1) * 128;
  return (size_class % 8 + 9) << (size_class / 8 + 6);
}

void* system_take(size_t bytes) {
  if (bytes < kHuge) return std::aligned_alloc(64, bytes);
  const size_t mapped = bytes + kHuge;
  void* const mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(mapping);
  auto* const aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(begin), kHuge));
  if (aligned != begin) munmap(begin, static_cast<size_t>(aligned - begin));
  if (std::byte* const end = aligned + bytes; end != begin + mapped) munmap(end, static_cast<size_t>(begin + mapped - end));
  madvise(aligned, bytes, MADV_HUGEPAGE);
  return aligned;
}

void system_give(void* block, size_t bytes) noexcept {
  if (bytes < kHuge)
    std::free(block);
  else
    munmap(block, bytes);
}

}  // namespace

// The head of a block; the tensor's data follow.
struct TensorMemory::Block {
  static constexpr size_t kHeader = 128;

  size_t size_class = 0;
  size_t requested = 0;
  Reservation charge;
  std::shared_ptr<TensorAccount> account;  // null: not charged
  Block* next = nullptr;                   // in the free list

  std::byte* data() { return reinterpret_cast<std::byte*>(this) + kHeader; }
  static Block* of(void* data) { return reinterpret_cast<Block*>(static_cast<std::byte*>(data) - kHeader); }
  void poison() {
    if (account && account->poison()) std::memset(data(), 0xff, requested);
  }
};

void* TensorMemory::allocate(size_t bytes) {
  static_assert(sizeof(Block) <= Block::kHeader && Block::kHeader % 64 == 0);
  if (bytes == 0) return nullptr;
  if (bytes > (uint64_t{1} << 46)) fail(ErrorKind::bug, "a tensor of {} is asked for", format_bytes(bytes));
  std::shared_ptr<TensorAccount> account = thread_account() != nullptr ? *thread_account() : nullptr;
  Reservation charge = account ? account->charge(bytes) : Reservation();
  const size_t size_class = class_of(bytes + Block::kHeader);
  Block* const block = take(size_class);
  if (block == nullptr) {
    if (account) account->give_back(std::move(charge));
    fail(ErrorKind::host_memory, "no room in RAM for a tensor of {}. Lower memory.gpu or train_micro_batch_size_per_gpu", format_bytes(bytes));
  }
  block->size_class = size_class;
  block->requested = bytes;
  block->charge = std::move(charge);
  block->account = std::move(account);
  block->poison();
  if (!block->account) {
    const std::lock_guard lock(mutex_);
    stats_.uncharged += bytes;
  }
  return block->data();
}

TensorMemory::Block* TensorMemory::take(size_t size_class) {
  const size_t size = class_bytes(size_class);
  const std::lock_guard lock(mutex_);
  Block* block = free_[size_class];
  if (block != nullptr) {
    free_[size_class] = block->next;
    stats_.cached -= size;
  } else {
    void* memory = system_take(size);
    if (memory == nullptr) {
      release_cached_locked();
      memory = system_take(size);
    }
    if (memory == nullptr) return nullptr;
    block = new (memory) Block;
  }
  stats_.live += size;
  live_peak_ = std::max(live_peak_, stats_.live);
  return block;
}

void TensorMemory::free(void* data) noexcept {
  if (data == nullptr) return;
  Block* const block = Block::of(data);
  block->poison();
  const uint64_t uncharged = block->account ? 0 : block->requested;
  if (block->account) block->account->give_back(std::move(block->charge));
  block->account.reset();
  const size_t size = class_bytes(block->size_class);
  {
    const std::lock_guard lock(mutex_);
    stats_.live -= size;
    stats_.uncharged -= uncharged;
    if (stats_.cached + size <= std::max(kAlwaysCached, live_peak_)) {
      stats_.cached += size;
      block->next = free_[block->size_class];
      free_[block->size_class] = block;
      return;
    }
  }
  block->~Block();
  system_give(block, size);
}

TensorMemoryStats TensorMemory::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void TensorMemory::release_cached() noexcept {
  const std::lock_guard lock(mutex_);
  release_cached_locked();
}

void TensorMemory::release_cached_locked() noexcept {
  for (Block*& head : free_) {
    while (head != nullptr) {
      Block* const block = std::exchange(head, head->next);
      const size_t size = class_bytes(block->size_class);
      block->~Block();
      system_give(block, size);
    }
  }
  stats_.cached = 0;
}

}  // namespace sluice::gpu
