#include "engine/attention_bf16.h"

#include <algorithm>
#include <span>

#include "gpu/cpu_products.h"

namespace sluice::engine {
namespace {

using gpu::cpu::AttentionTile;
using gpu::cpu::Element;
using gpu::cpu::LeftPairs;
using gpu::cpu::padded_columns;
using gpu::cpu::RightPairs;

const uint16_t* bits(const HeadView& view, int64_t token) { return static_cast<const uint16_t*>(view.at(token)); }

// Rows of a head as a left factor: they are pairs along head_dim.
LeftPairs rows_of(const HeadView& view, int64_t first) { return {view.at(first), view.stride * view.element, sizeof(uint32_t)}; }

// The sizes of the products of one call, and the parts of a thread's scratch.
class Products {
 public:
  Products(const AttentionPlan& plan, bool backward)
      : plan_(plan),
        dim_(plan.shape.head_dim),
        sizes_(attention_scratch(plan.tokens, dim_, plan.longest, true)),
        words_(backward ? sizes_.backward : sizes_.forward) {}

  int64_t words() const { return words_; }

  struct Scratch {
    uint32_t *keys, *keys_by_rows, *values, *rounded, *paired, *paired_tile;
    float *tile, *inverse_sum, *scores, *grad_scores;
  };
  Scratch forward(float* at) const {
    Scratch s{};
    s.keys = take<uint32_t>(at, sizes_.keys);
    s.values = take<uint32_t>(at, sizes_.values);
    s.tile = take<float>(at, sizes_.tile);
    s.inverse_sum = take<float>(at, kAttentionQueries);
    s.scores = take<float>(at, sizes_.scores);
    s.rounded = take<uint32_t>(at, sizes_.rounded);
    return s;
  }
  Scratch backward(float* at) const {
    Scratch s{};
    s.keys = take<uint32_t>(at, sizes_.keys);
    s.keys_by_rows = take<uint32_t>(at, sizes_.keys_by_rows);
    s.values = take<uint32_t>(at, sizes_.values);
    s.tile = take<float>(at, sizes_.tile);
    s.scores = take<float>(at, sizes_.scores);
    s.grad_scores = take<float>(at, sizes_.scores);
    s.rounded = take<uint32_t>(at, sizes_.rounded);
    s.paired = take<uint32_t>(at, sizes_.paired);
    s.paired_tile = take<uint32_t>(at, sizes_.paired_tile);
    return s;
  }

  // Keys or values of a document, from `first` on.
  RightPairs along_dim(const HeadView& head, int64_t first, int64_t count, uint32_t* to) const {
    const int64_t stride = padded_columns(plan_.tokens);
    gpu::cpu::pair_columns(bits(head, first), head.stride, count, dim_, to, stride);
    return {to, stride};
  }
  RightPairs along_tokens(const HeadView& head, int64_t first, int64_t count, uint32_t* to) const {
    const int64_t stride = padded_columns(dim_);
    gpu::cpu::pair_rows(bits(head, first), head.stride, count, dim_, to, stride);
    return {to, stride};
  }

  // [rows][keys] = scale * rows of `left` times keys or values.
  void scores(const LeftPairs& left, const RightPairs& right, const QueryTile& t, float scale, float* to) const {
    gpu::cpu::multiply(left, right, {.m = t.rows(), .n = t.keys(), .pairs = dim_ / 2, .scale = scale}, to, t.keys());
  }
  // The tile = scale * [rows][keys] times keys or values.
  void tile(const QueryTile& t, const float* factors, const RightPairs& right, float scale, const Scratch& s) const {
    const int64_t pairs = (t.keys() + 1) / 2;
    gpu::cpu::store_rows(Element::bf16, factors, nullptr, s.rounded, 2 * pairs, t.rows(), t.keys());
    if (t.keys() % 2 == 1)
      for (int64_t r = 0; r < t.rows(); ++r) reinterpret_cast<uint16_t*>(s.rounded)[(r + 1) * 2 * pairs - 1] = 0;
    gpu::cpu::multiply({s.rounded, pairs * static_cast<int64_t>(sizeof(uint32_t)), sizeof(uint32_t)}, right,
                       {.m = t.rows(), .n = dim_, .pairs = pairs, .scale = scale}, s.tile, dim_);
  }
  // sum [keys][head_dim] += scale * the transpose of [rows][keys] times rows of `head`.
  void add_by_queries(const QueryTile& t, const float* factors, const HeadView& head, float scale, const Scratch& s, float* sum) const {
    const int64_t stride = padded_columns(t.keys());
    gpu::cpu::pair_rows(factors, t.keys(), t.rows(), t.keys(), s.paired, stride);
    const RightPairs right = along_tokens(head, t.first_query, t.rows(), s.paired_tile);
    gpu::cpu::multiply({s.paired, sizeof(uint32_t), stride * static_cast<int64_t>(sizeof(uint32_t))}, right,
                       {.m = t.keys(), .n = dim_, .pairs = (t.rows() + 1) / 2, .scale = scale, .add = true}, sum, dim_);
  }

 private:
  template <class T>
  static T* take(float*& at, int64_t words) {
    T* part = reinterpret_cast<T*>(at);
    at += words;
    return part;
  }

  const AttentionPlan& plan_;
  const int64_t dim_;
  const AttentionScratch sizes_;
  const int64_t words_;
};

// Calls body(tiles) for the tiles of each document, whose keys are those from the first tile's first key to the last one's end.
template <class Body>
void for_each_document(const WorkPart& part, const Body& body) {
  for (auto first = part.tiles.begin(); first != part.tiles.end();) {
    const auto last = std::find_if(first, part.tiles.end(), [&](const QueryTile& t) { return t.first_key != first->first_key; });
    body(std::span<const QueryTile>(first, last));
    first = last;
  }
}

}  // namespace

bool has_bf16_attention(at::ScalarType type, int64_t head_dim) {
  return by_bf16_products(type == at::kBFloat16, head_dim);
}

void forward_bf16(const AttentionPlan& plan, const AttentionInputs& in, const at::Tensor& out, const at::Tensor& log_sum_exp) {
  const int64_t group = plan.shape.heads / plan.shape.kv_heads;
  const Products products(plan, false);
  for_each_item(plan, products.words(), in.q.options(), [&](const AttentionItem& item, float* scratch) {
    const auto s = products.forward(scratch);
    float* lse = log_sum_exp.data_ptr<float>() + (item.row * plan.shape.heads + item.head) * plan.tokens;
    const HeadView q = head_view(in.q, plan, item.row, item.head), k = head_view(in.k, plan, item.row, item.head / group),
                   v = head_view(in.v, plan, item.row, item.head / group), result = head_view(out, plan, item.row, item.head);
    for_each_document(part_of(plan, item), [&](std::span<const QueryTile> tiles) {
      const int64_t first = tiles.front().first_key, count = tiles.back().end - first;
      const RightPairs keys = products.along_dim(k, first, count, s.keys), values = products.along_tokens(v, first, count, s.values);
      for (const QueryTile& t : tiles) {
        products.scores(rows_of(q, t.first_query), keys, t, plan.scale, s.scores);
        const AttentionTile tile = tile_of(t, s.scores);
        gpu::cpu::attention_softmax(tile, s.inverse_sum, lse + t.first_query);
        drop(plan, item, t, tile);
        products.tile(t, s.scores, values, 1, s);
        gpu::cpu::store_rows(Element::bf16, s.tile, s.inverse_sum, result.at(t.first_query), result.stride, t.rows(), plan.shape.head_dim);
      }
    });
  });
}

void backward_bf16(const AttentionPlan& plan, const AttentionInputs& in, const at::Tensor& log_sum_exp, const at::Tensor& grad_out,
                   const at::Tensor& grad_q, const at::Tensor& partial) {
  const int64_t dim = plan.shape.head_dim, group = plan.shape.heads / plan.shape.kv_heads, block = plan.tokens * dim;
  const Products products(plan, true);
  for_each_item(plan, products.words(), grad_q.options(), [&](const AttentionItem& item, float* scratch) {
    const auto s = products.backward(scratch);
    const int64_t pair = item.row * plan.shape.heads + item.head;
    const float* lse = log_sum_exp.const_data_ptr<float>() + pair * plan.tokens;
    float *dk = partial.data_ptr<float>() + (pair * plan.parts + item.part) * 2 * block, *dv = dk + block;
    const HeadView q = head_view(in.q, plan, item.row, item.head), k = head_view(in.k, plan, item.row, item.head / group),
                   v = head_view(in.v, plan, item.row, item.head / group), d_out = head_view(grad_out, plan, item.row, item.head),
                   d_query = head_view(grad_q, plan, item.row, item.head);
    const WorkPart& part = part_of(plan, item);
    clear_partial(plan, part, dk);
    for_each_document(part, [&](std::span<const QueryTile> tiles) {
      const int64_t first = tiles.front().first_key, count = tiles.back().end - first;
      const RightPairs keys = products.along_dim(k, first, count, s.keys), values = products.along_dim(v, first, count, s.values),
                       keys_by_rows = products.along_tokens(k, first, count, s.keys_by_rows);
      for (const QueryTile& t : tiles) {
        products.scores(rows_of(q, t.first_query), keys, t, plan.scale, s.scores);
        products.scores(rows_of(d_out, t.first_query), values, t, 1, s.grad_scores);
        const AttentionTile tile = tile_of(t, s.scores);
        drop(plan, item, t, tile_of(t, s.grad_scores));
        gpu::cpu::attention_softmax_grad(tile, lse + t.first_query, s.grad_scores);
        drop(plan, item, t, tile);  // the values met the kept probabilities only
        products.tile(t, s.grad_scores, keys_by_rows, plan.scale, s);
        gpu::cpu::store_rows(Element::bf16, s.tile, nullptr, d_query.at(t.first_query), d_query.stride, t.rows(), dim);
        products.add_by_queries(t, s.grad_scores, q, plan.scale, s, dk + first * dim);
        products.add_by_queries(t, s.scores, d_out, 1, s, dv + first * dim);
      }
    });
  });
}

}  // namespace sluice::engine
