// What a rank does in the contract tests, whatever carries its data and however it was started.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "engine/comm/comm.h"

namespace sluice::comm {

struct RankContext {
  Comm& comm;
  gpu::Device& device;
  gpu::Stream& stream;
  int rank() const { return comm.rank(); }
  int world() const { return comm.world(); }
};

// What became of a rank: its exit code (128 + signal when killed), and what it says.
struct Outcome {
  int code = 0;
  std::string text;
};

using MakeDevice = std::function<std::unique_ptr<gpu::Device>()>;
using MakeComm = std::function<std::unique_ptr<Comm>(const CommOptions&)>;

// A body ends with a closed Comm, or throws. By name, so that another program can be told which.
//   collectives  every type, shape of parts, and operation against plain loops
//   control      exchanges of the control channel
//   idle         exchanges until somebody fails
//   late, dead, failed, left    rank `world - 1` is, in the middle of collectives; the others go on until they are told
//   late_control, mismatch
//   deaf         rank `world - 1` fails; the others do not listen
const std::map<std::string, std::function<void(RankContext&)>>& rank_bodies();

// A device, a stream, a Comm; then the body. Never throws.
Outcome run_rank(const MakeDevice& make_device, const MakeComm& make_comm, const std::string& body);

// Seconds of the deadlines in these tests, and what a test may take beyond it on a busy machine.
inline constexpr double kDeadline = 2, kSlack = 20;

}  // namespace sluice::comm
