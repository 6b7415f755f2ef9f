// How fast a machine is, as the simulator needs it. Plain data; read from and written to profiles by
// configs/machine_profile.h.
#pragma once
#include <cstdint>
#include <string>

namespace sluice::offload {

// What Adam moves through DRAM per parameter in bf16: gradient 2; hi, lo, m, v read and written, 24.
inline constexpr double kAdamBytes = 26;

// Rates are what one kind of work reaches alone; decimal units. A rate of 0 is unknown: a plan that needs it
// is refused.
struct Machine {
  std::string name;
  bool assumed = false;  // from data sheets and reports, not measured here
  std::string busy;      // what disturbed the measurement: "adam differed by 45 % between rounds"; empty: nothing did
  std::string known;     // not part of a profile: where it comes from, for people; empty: the name says all

  double disk_read = 0, disk_write = 0;  // bytes per second
  double disk_mixed = 0;                 // reads and writes together, in sum
  double disk_latency = 1e-4;            // seconds of each operation before its bytes flow
  double flush = 0.02;                   // seconds
  double h2d = 0, d2h = 0;               // bytes per second
  double copy_both = 0;                  // both ways together, in sum; 0: one does not slow the other
  double copy_latency = 2e-5;            // seconds
  double net = 0;                        // bytes per second that a rank receives from the others
  double net_latency = 5e-5;             // seconds of a collective before its bytes flow
  double dram = 0;                       // bytes per second, of everything that touches host memory
  double adam = 0;                       // parameters per second
  double update_latency = 2e-5;          // seconds
  double compute = 0;                    // FLOP per second
  double enqueue = 0;                    // seconds that the issuing thread spends on each device operation
  double device_memory_rate = 0;         // bytes per second; where the state is on a real device

  // Share of all cores that work takes at its full rate. All 0: nothing on the host is short of cores.
  double compute_cores = 0, update_cores = 0, h2d_cores = 0, d2h_cores = 0;

  uint64_t gpu_bytes = 0, host_bytes = 0, disk_bytes = 0;  // that a run may use; 0: unknown
  uint64_t runtime_bytes = 0;  // of a real device, beside gpu_bytes: its context, kernels and libraries; 0: unknown
};

}  // namespace sluice::offload
