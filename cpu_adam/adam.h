// One pass of Adam or Lion over a tile of offloaded state, and the leaf norm. Spans only: no files, no tensors.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sluice::cpu_adam {

// Leaf: the unit of norms and checksums, on a grid that starts at the tile's first element.
inline constexpr size_t kLeaf = 65536;

enum class GradType { bf16, fp16, fp32 };
struct Gradient {
  const void* data = nullptr;  // null: absent
  GradType type = GradType::bf16;
};
constexpr size_t element_bytes(GradType type) { return type == GradType::fp32 ? 4 : 2; }
// The same gradient from element `offset` on; an absent one stays absent.
inline Gradient advance(const Gradient& grad, size_t offset) {
  if (grad.data == nullptr) return grad;
  return {static_cast<const std::byte*>(grad.data) + offset * element_bytes(grad.type), grad.type};
}

// Hyperparameters of one parameter group for one step. Everything that depends on the step number is computed
// in double by make_step_group and rounded once. Lion takes decoupled decay, no bias correction, and no eps.
struct GroupOptions {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = true;  // AdamW; false: decay is added to the gradient (L2)
  bool bias_correction = true;
};
struct StepGroup {
  float lr_decay;  // decoupled: p *= 1 - lr * weight_decay
  float l2;        // not decoupled: g += l2 * p
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  float step_size;       // lr / (1 - beta1^t)
  float inv_sqrt_bias2;  // 1 / sqrt(1 - beta2^t)
};
StepGroup make_step_group(const GroupOptions& options, uint64_t step);  // step counts from 1

// A run of elements of the tile that belong to one group. Spans are sorted, disjoint; gaps between them are
// never touched (they hold zeros and stay zero).
struct GroupSpan {
  uint64_t offset, count;
  uint32_t group;
};

// fp32 master = hi (bf16) + lo (16-bit remainder), see base/bf16.h; or a plain fp32 array p (then hi and lo
// are null). Beside p there may be its rounded copy for fp16 compute, which is only written. Without v the update is Lion's.
struct TileState {
  uint16_t* hi = nullptr;
  int16_t* lo = nullptr;
  float* p = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  uint16_t* half = nullptr;  // p to the nearest fp16, ties to even; infinite from 65520 on
};

// XXH3-64 of each field's elements of a leaf (gaps included, padding beyond `count` not), filled by update:
// [leaf]. Fields that the format lacks stay empty.
struct LeafHashes {
  std::vector<uint64_t> weights;  // what the forward reads: hi; p without half; half
  std::vector<uint64_t> lo, m, v;
  std::vector<uint64_t> p;  // beside half
};

struct TileUpdate {
  TileState state;
  size_t count = 0;                   // logical elements (without the padding of the extent)
  Gradient grad, grad2;               // rounded contributions, added in fp32 (grad2: tied matrix)
  float grad_scale = 1;               // unscale x clip coefficient, applied to the fp32 sum
  std::span<const GroupSpan> spans;   // Error(bug): unsorted, overlapping, beyond count, of an unknown group
  std::span<const StepGroup> groups;  // indexed by GroupSpan::group
  LeafHashes* hashes = nullptr;       // optional
  TileState saved;                    // optional: arrays like those of state, which get what is in them before the update
};

enum class Target { best, scalar, avx2, avx512 };  // all give the same bits; best: what the CPU has
bool is_supported(Target target);                  // by this CPU; best and scalar always are

// The update of one element, in fp32, each line rounded as written (fma: once). p is the joined master; a NaN
// result is stored as 0x7FC00000.
//   g = (grad + grad2) * grad_scale                    L2: g = fma(l2, p, g)
//   m = fma(one_minus_beta1, g, beta1 * m)
//   v = fma(one_minus_beta2 * g, g, beta2 * v)
//   p = fma(-step_size, m / fma(sqrt(v), inv_sqrt_bias2, eps), p * lr_decay)
// Lion (Chen et al. 2023, arXiv 2302.06675), whose sign of zero is zero, and of a NaN a NaN:
//   c = fma(one_minus_beta1, g, beta1 * m)
//   m = fma(one_minus_beta2, g, beta2 * m)
//   p = fma(-step_size, sign(c), p * lr_decay)
//
// The sum of squares of a leaf: 64 double lanes by (index mod 64), each added in index order (the square of a
// float is exact in double), then lanes i and i + w are added for w = 32, 16, ..., 1. Tied: of the fp32 sum
// of both contributions. The gradients are not scaled.

// Runs kernels over tiles with its own TBB arena. Thread-safe; calls may not overlap on the same memory. Bits
// depend neither on the number of threads nor on the target. Kernels run with FTZ/DAZ off; the caller's own
// mode is restored.
class CpuAdam {
 public:
  struct Options {
    int threads = 0;  // 0: all this process may use
    Target target = Target::best;
  };
  explicit CpuAdam(const Options& options);  // Error(config) when the CPU lacks the target
  ~CpuAdam();

  void update(const TileUpdate& tile) const;
  // The first `count` elements of every array of a tile. `to` is written past the caches.
  void copy(const TileState& from, const TileState& to, size_t count) const;
  // leaf_sums gets ceil(count / kLeaf) entries. Returns nothing else: a non-finite gradient shows as a
  // non-finite sum.
  void squared_norms(const Gradient& grad, const Gradient& grad2, size_t count,
                     std::span<double> leaf_sums) const;
  void split(const float* p, uint16_t* hi, int16_t* lo, size_t count) const;
  void join(const uint16_t* hi, const int16_t* lo, float* p, size_t count) const;
  std::string describe() const;  // "AVX-512, 2 threads"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::cpu_adam
