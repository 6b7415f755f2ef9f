// In place of nccl_comm.cc where there is no NCCL.
#include "engine/comm/nccl_comm.h"

#include "base/error.h"

namespace sluice::comm {

std::unique_ptr<Comm> make_nccl_comm(std::shared_ptr<MpiSession>, std::shared_ptr<Control>, const CommOptions&) {
  base::fail(base::ErrorKind::config, "several ranks with CUDA devices need NCCL, and this sluice is built without: install the CUDA 13 toolkit and "
             "NCCL 2.28 (nccl.h, libnccl.so) and build again, or set machine.device to cpu");
}

}  // namespace sluice::comm
