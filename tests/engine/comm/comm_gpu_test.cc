// The contract over NCCL: one rank for each GPU. Skipped without; one GPU runs one rank.
#include <algorithm>

#include "comm_suite.h"
#include "gpu/cuda_device.h"
#include "ranks.h"
#include "tests/paths.h"

namespace sluice::comm {
namespace {

int gpus() {
  int count = 0;
  while (gpu::can_use_cuda(count).usable) ++count;
  return count;
}

const Kind kNccl{"Nccl", [](int world, const std::string& body) { return run_by_launcher("cuda_rank_program", world, body); }, true, gpus()};

INSTANTIATE_TEST_SUITE_P(Gpu, CommSuite, testing::Values(kNccl), testing::PrintToStringParamName());

}  // namespace
}  // namespace sluice::comm
