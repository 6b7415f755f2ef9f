// What doctor says about GPUs.
#pragma once
#include <string>
#include <vector>

#include "apps/doctor_finding.h"
#include "gpu/cuda_report.h"

namespace sluice::apps {

// kernel_driver: the first line of /proc/driver/nvidia/version; empty: the kernel has no NVIDIA driver.
std::vector<Finding> gpu_findings(const gpu::CudaReport& report, const std::string& kernel_driver);

}  // namespace sluice::apps
