// The contract over NCCL: one rank for each GPU. Skipped without; one GPU runs one rank, which connects, gathers and finalises through NCCL all the same.

#include "base/error.h"
#include "comm_suite.h"
#include "engine/comm/nccl_watch.h"
#include "gpu/cuda_device.h"
#include "ranks.h"

namespace sluice::comm {
namespace {

int gpus() {
  int count = 0;
  while (gpu::can_use_cuda(count).usable) ++count;
  return count;
}

const Kind kNccl{"Nccl", [](int world, const std::string& body) { return run_by_launcher("cuda_rank_program", world, body); }, true, gpus()};

INSTANTIATE_TEST_SUITE_P(Gpu, CommSuite, testing::Values(kNccl), testing::PrintToStringParamName());

// As after a failure of another rank: the communicator is gone, and what is asked of it says so.
TEST(NcclWatch, AnAbortEndsTheCommunicator) {
  if (gpus() == 0) GTEST_SKIP() << "no device";
  const auto device = gpu::make_cuda_device({.memory = 64 << 20});
  const auto stream = device->create_stream("nccl");
  const auto memory = device->allocate(32, "test");
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t begun = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  ASSERT_TRUE(begun == ncclSuccess || begun == ncclInProgress) << ncclGetErrorString(begun);
  Control control{ControlOptions{}};
  const auto watch = std::make_shared<NcclWatch>(control, comm);
  watch->start();
  watch->settle("ncclCommInitRankConfig");
  const auto gather = [&](ncclComm_t c) {
    return ncclAllGather(memory->data(), memory->data() + 16, 16, ncclUint8, c, static_cast<cudaStream_t>(stream->native()));
  };
  gpu::Event before = stream->record();
  watch->group("ncclAllGather", gather);
  watch->add(std::move(before), stream->record());
  stream->synchronize();
  watch->finish(/*orderly=*/false);
  EXPECT_THROW(watch->group("ncclAllGather", gather), base::Error);
}

}  // namespace
}  // namespace sluice::comm
