#include "engine/step_data.h"

#include <algorithm>

#include "engine/document_groups.h"

namespace sluice::engine {

HostMicroBatch assemble(const Packing& packing, uint64_t first, uint32_t rows, uint32_t sequence, uint64_t end) {
  HostMicroBatch batch;
  const size_t plane = size_t{rows} * sequence;
  batch.ids.assign(4 * plane, 0);
  std::fill_n(batch.ids.begin() + static_cast<std::ptrdiff_t>(plane), plane, -100);
  for (uint32_t row = 0; row < rows; ++row) {
    if (first + row >= end) {
      batch.pieces.push_back({0});
      continue;
    }
    Sample sample = packing.sample(first + row);
    const auto place = [&](size_t which, const std::vector<int32_t>& values) {
      std::copy(values.begin(), values.end(), batch.ids.begin() + static_cast<std::ptrdiff_t>(which * plane + size_t{row} * sequence));
    };
    place(0, sample.tokens);
    place(1, sample.targets);
    place(2, sample.positions);
    batch.trained += sample.trained;
    batch.pieces.push_back(std::move(sample.starts));
  }
  write_starts(batch, sequence);
  return batch;
}

void write_starts(HostMicroBatch& batch, uint32_t sequence) {
  const size_t plane = batch.ids.size() / 4;
  write_document_starts(batch.pieces, sequence, {reinterpret_cast<int32_t*>(batch.ids.data() + 3 * plane), 2 * plane});
}

}  // namespace sluice::engine
