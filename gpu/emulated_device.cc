#include "gpu/emulated_device.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "base/arena.h"
#include "base/link.h"
#include "base/units.h"
#include "gpu/cast.h"
#include "gpu/host_kernels.h"
#include "gpu/host_registry.h"
#include "gpu/stream_thread.h"
#include "gpu/tensor_account.h"

namespace sluice::gpu {
namespace {

// All ones is a NaN in fp32, bf16 and double, and an index out of any range.
void fill_poison(std::byte* data, size_t bytes) { std::memset(data, 0xff, bytes); }

// Denormals are kept: flush-to-zero and denormals-are-zero off. Threads started by this one inherit it.
void keep_denormals() {
#if defined(__SSE__)
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  _mm_setcsr(_mm_getcsr() & ~(kFlushToZero | kDenormalsAreZero));
#endif
}

// What streams and buffers of one device share.
struct Shared {
  explicit Shared(const EmulatedOptions& o)
      : options(o),
        budget(std::make_shared<base::Budget>("device", o.memory, base::ErrorKind::device_memory)),
        tensors(std::make_shared<TensorAccount>(budget, o.poison)),
        h2d(o.h2d),
        d2h(o.d2h) {}

  const EmulatedOptions options;
  const std::shared_ptr<base::Budget> budget;
  const std::shared_ptr<TensorAccount> tensors;
  base::Link h2d, d2h;
  HostRegistry hosts, buffers;      // opaque: what copies may touch
  std::atomic<uint64_t> arenas{0};  // bytes of the buffers alive

  void check_copy(const std::byte* device, const std::byte* host, size_t bytes) const {
    if (!options.opaque || bytes == 0) return;
    SLUICE_CHECK(buffers.contains(device), "the device side of a copy is no device memory");
    hosts.for_each_part(host, bytes, [](size_t, size_t) {});
  }
};

class EmulatedRegistration final : public HostRegistration {
 public:
  EmulatedRegistration(std::shared_ptr<Shared> shared, std::span<std::byte> range) : shared_(std::move(shared)), begin_(range.data()) {
    shared_->hosts.add(range);
  }
  ~EmulatedRegistration() override { shared_->hosts.remove(begin_); }

 private:
  const std::shared_ptr<Shared> shared_;
  const std::byte* const begin_;
};

class EmulatedBuffer final : public DeviceBuffer {
 public:
  EmulatedBuffer(std::shared_ptr<Shared> shared, size_t bytes, const std::string& purpose)
      : shared_(std::move(shared)), charge_(shared_->budget->reserve(purpose, bytes)), arena_(bytes, purpose) {
    data_ = arena_.data();
    size_ = bytes;
    shared_->arenas += bytes;
    shared_->buffers.add({data_, size_});
    if (shared_->options.poison) fill_poison(data_, size_);
  }
  ~EmulatedBuffer() override {
    shared_->buffers.remove(data_);
    shared_->arenas -= size_;
  }

 private:
  const std::shared_ptr<Shared> shared_;
  const base::Reservation charge_;
  const base::Arena arena_;
};

class EmulatedStream final : public Stream {
 public:
  EmulatedStream(std::shared_ptr<Shared> shared, const std::string& name, StreamThreadStart start)
      : shared_(std::move(shared)), thread_(name, [this, start = std::move(start)] {
          keep_denormals();
          set_thread_account(&shared_->tensors);
          if (start) start();
        }) {}

  void enqueue(std::function<void()> work) override { thread_.enqueue(std::move(work)); }

  void copy_in(std::byte* device, const std::byte* host, size_t bytes) override {
    shared_->check_copy(device, host, bytes);
    // Poison as early as the old content is surely dead: now if nothing is pending here, else at the copy's turn.
    const bool poison = shared_->options.poison;
    const bool poison_now = poison && thread_.idle();
    if (poison_now) fill_poison(device, bytes);
    thread_.enqueue([this, device, host, bytes, poison_later = poison && !poison_now] {
      if (poison_later) fill_poison(device, bytes);
      shared_->h2d.pass(bytes);
      std::memcpy(device, host, bytes);
    });
  }

  void copy_out(std::byte* host, const std::byte* device, size_t bytes) override {
    shared_->check_copy(device, host, bytes);
    thread_.enqueue([this, host, device, bytes] {
      shared_->d2h.pass(bytes);
      std::memcpy(host, device, bytes);
    });
  }

  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    thread_.enqueue([to, from, bytes] {
      if (bytes > 0) std::memcpy(to, from, bytes);
    });
  }

  void cast_out(std::byte* to, const float* device, size_t count, WireType type) override {
    const bool leaves = !shared_->buffers.contains(to);
    if (leaves) shared_->check_copy(reinterpret_cast<const std::byte*>(device), to, count * wire_bytes(type));
    thread_.enqueue([this, to, device, count, type, leaves] {
      if (leaves) shared_->d2h.pass(count * wire_bytes(type));
      switch (type) {
        case WireType::fp32: return static_cast<void>(std::memcpy(to, device, count * sizeof(float)));
        case WireType::fp16: return cast_to_fp16(device, reinterpret_cast<uint16_t*>(to), count);
        case WireType::bf16: return cast_to_bf16(device, reinterpret_cast<uint16_t*>(to), count);
      }
    });
  }

  void leaf_norms(double* sums, const WireGradient& grad, size_t count) override {
    thread_.enqueue([sums, grad, count] { gpu::leaf_norms(sums, grad, count); });
  }
  void adam(const AdamRun& run) override {
    thread_.enqueue([run] { gpu::adam(run); });
  }
  void rank_sum(const RankSum& sum) override {
    thread_.enqueue([sum] { gpu::rank_sum(sum); });
  }

  Event record() override { return thread_.record(); }
  void wait(const Event& event) override { thread_.wait(event); }
  void synchronize() override { thread_.record().synchronize(); }

 private:
  const std::shared_ptr<Shared> shared_;
  StreamThread thread_;  // last: its destructor finishes work that uses the rest
};

class EmulatedDevice final : public Device {
 public:
  EmulatedDevice(const EmulatedOptions& options, StreamThreadStart start)
      : shared_(std::make_shared<Shared>(options)), start_(std::move(start)) {}

  std::string describe() const override {
    return fmt::format("emulated device on the CPU, {} of memory", base::format_bytes(shared_->options.memory));
  }

  DeviceKind kind() const override { return DeviceKind::cpu; }
  int index() const override { return 0; }
  bool host_addressable() const override { return !shared_->options.opaque; }

  std::unique_ptr<Stream> create_stream(const std::string& name) override {
    return std::make_unique<EmulatedStream>(shared_, name, start_);
  }

  std::unique_ptr<DeviceBuffer> allocate(size_t bytes, const std::string& purpose) override {
    return std::make_unique<EmulatedBuffer>(shared_, bytes, purpose);
  }

  std::unique_ptr<HostRegistration> register_host(std::span<std::byte> range) override {
    return std::make_unique<EmulatedRegistration>(shared_, range);
  }

  base::Budget& budget() override { return *shared_->budget; }

  MemoryStats memory() const override {
    MemoryStats stats;
    stats.limit = shared_->budget->limit();
    stats.arenas = shared_->arenas;
    stats.temporaries = shared_->tensors->used();
    stats.temporaries_peak = shared_->tensors->peak();
    stats.held_peak = stats.temporaries_peak;
    stats.peak = shared_->budget->peak();
    return stats;
  }

  void reset_peak() override {
    shared_->budget->reset_peak();
    shared_->tensors->reset_peak();
  }

  void poison(std::byte* data, size_t bytes) override {
    if (shared_->options.poison) fill_poison(data, bytes);
  }

 private:
  const std::shared_ptr<Shared> shared_;
  const StreamThreadStart start_;
};

}  // namespace

std::unique_ptr<Device> make_plain_device(const EmulatedOptions& options, StreamThreadStart thread_start) {
  return std::make_unique<EmulatedDevice>(options, std::move(thread_start));
}

}  // namespace sluice::gpu
