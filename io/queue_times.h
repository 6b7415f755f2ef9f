// How long the requests of a disk queue take and how many are in flight, as counters that only grow.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::io {

// Of one direction. Plain data.
struct QueueTimes {
  double busy = 0;       // seconds with at least one request in flight
  double in_flight = 0;  // seconds summed over the requests: submit to done
  // Requests by duration: quarters of powers of two from 10 µs on. The last one takes all that are longer.
  static constexpr size_t kBuckets = 96;
  std::array<uint64_t, kBuckets> latency{};

  void add(double seconds);
  // Seconds that so many of a hundred requests stay below (the upper end of a bucket: at most a fifth too much); 0 of none.
  double percentile(double percent) const;
  double depth() const { return busy > 0 ? in_flight / busy : 0; }  // mean requests in flight, while there are any
  QueueTimes operator-(const QueueTimes& earlier) const;
};

}  // namespace sluice::io
