#include "engine/comm/comm.h"

#include <algorithm>

#include "base/error.h"

namespace sluice::comm {

Comm::Comm(std::shared_ptr<Control> control, const CommOptions& options)
    : control_(std::move(control)),
      options_(options),
      staging_(control_->world() > 1 ? options.device->allocate(staging_bytes(control_->world(), options.staging), "communication") : nullptr) {
}

void Comm::check_parts(std::span<const Part> parts) const {
  SLUICE_CHECK(parts.size() == static_cast<size_t>(world()), "one part for each rank");
}

void Comm::add_seconds(double seconds) { counters_.seconds += seconds; }

void Comm::all_gather(gpu::Stream& stream, const std::byte* shard, std::byte* whole, std::span<const Part> parts, WireType type) {
  check_parts(parts);
  const uint64_t width = gpu::wire_bytes(type);
  const auto place = [&](int rank) { return whole + parts[static_cast<size_t>(rank)].first * width; };
  const auto bytes = [&](int rank) { return parts[static_cast<size_t>(rank)].count * width; };
  const uint64_t own = bytes(rank());
  uint64_t received = 0;
  bool even = own > 0;
  for (int r = 0; r < world(); ++r) {
    if (r != rank()) received += bytes(r);
    even = even && bytes(r) == own && place(r) == place(0) + static_cast<uint64_t>(r) * own;
  }
  ++counters_.gathers;
  counters_.gather_sent += own * static_cast<uint64_t>(world() - 1);
  counters_.gather_received += received;
  if (own + received > 0) begin(stream);
  if (even && gather_even(stream, shard, place(0), own)) return;
  if (own > 0 && shard != place(rank())) stream.copy(place(rank()), shard, own);
  std::vector<Parcel> parcels;
  for (int r = 0; r < world(); ++r)
    if (r != rank() && own + bytes(r) > 0) parcels.push_back({r, shard, own, place(r), bytes(r)});
  if (!parcels.empty()) exchange(stream, std::move(parcels));
}

// Piece by piece through the staging area: each rank sends every other one the next piece of that one's part.
void Comm::reduce_scatter(gpu::Stream& stream, const std::byte* whole, std::byte* own, std::span<const Part> parts, WireType type,
                          WireType own_type) {
  check_parts(parts);
  const uint64_t width = gpu::wire_bytes(type), piece = options_.staging / width;
  SLUICE_CHECK(piece > 0);
  const auto part = [&](int rank) { return parts[static_cast<size_t>(rank)]; };
  uint64_t largest = 0;
  for (const Part& p : parts) largest = std::max(largest, p.count);
  ++counters_.reductions;
  if (world() > 1 && largest > 0) begin(stream);
  for (uint64_t done = 0; done < largest; done += piece) {
    const auto piece_of = [&](int rank) { return part(rank).count > done ? std::min(piece, part(rank).count - done) : 0; };
    const uint64_t count = piece_of(rank());
    std::vector<Parcel> parcels;
    uint64_t slot = 0;
    for (int r = 0; r < world(); ++r) {
      if (r == rank()) continue;
      if (piece_of(r) + count > 0)
        parcels.push_back({r, whole + (part(r).first + done) * width, piece_of(r) * width, staging_->data() + slot, count * width});
      slot += options_.staging;
      counters_.reduce_sent += piece_of(r) * width;
      counters_.reduce_received += count * width;
    }
    if (!parcels.empty()) exchange(stream, std::move(parcels));
    if (count == 0) continue;
    stream.rank_sum({.to = own + done * gpu::wire_bytes(own_type),
                     .to_type = own_type,
                     .own = whole + (part(rank()).first + done) * width,
                     .others = staging_ ? staging_->data() : nullptr,
                     .stride = options_.staging,
                     .rank = rank(),
                     .world = world(),
                     .type = type,
                     .count = count});
  }
}

CommStats Comm::stats() const {
  return {counters_.gathers,     counters_.gather_sent,    counters_.gather_received, counters_.reductions,
          counters_.reduce_sent, counters_.reduce_received, counters_.seconds};
}

}  // namespace sluice::comm
