// What doctor makes of GPUs that this machine does not have.
#include "apps/doctor_gpu.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::apps {
namespace {

using Status = Finding::Status;

gpu::CudaReport machine_in_order() {
  gpu::GpuReport gpu{.index = 0, .name = "NVIDIA H100", .bus_id = "0000:3b:00.0", .major = 9, .minor = 0, .total = 80ull << 30,
                     .free = 79ull << 30};
  gpu.link = gpu::PciLink{.generation = 5, .width = 16, .max_generation = 5, .max_width = 16, .numa_node = 0};
  gpu.huge_pages = gpu.cuda_memory = gpu::CopyRates{.h2d = 55e9, .d2h = 55e9, .h2d_beside = 45e9, .d2h_beside = 45e9};
  return {.built = true, .driver = 13000, .runtime = 13000, .error = {}, .gpus = {gpu}};
}

const Finding& find(const std::vector<Finding>& findings, const std::string& name) {
  const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.name == name; });
  EXPECT_NE(found, findings.end()) << name;
  return *found;
}

TEST(DoctorGpu, AMachineInOrderHasNothingToFix) {
  const auto findings = gpu_findings(machine_in_order(), "NVRM version: 580.65");
  EXPECT_EQ(findings.size(), 6u);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.status, Status::ok) << finding.name;
    EXPECT_TRUE(finding.fix.empty()) << finding.name;
    EXPECT_FALSE(finding.value.empty()) << finding.name;
  }
}

TEST(DoctorGpu, NothingThereIsANoteAndSaysWhatRunsUse) {
  const auto findings = gpu_findings({.built = true, .driver = 0, .runtime = 13000, .error = "no driver", .gpus = {}}, "");
  const Finding& driver = find(findings, "NVIDIA driver");
  EXPECT_EQ(driver.status, Status::note);
  EXPECT_NE(driver.meaning.find("emulated device"), std::string::npos);
}

TEST(DoctorGpu, AnOldDriverAndAHiddenGpuAreWarnings) {
  gpu::CudaReport old = machine_in_order();
  old.driver = 12080;
  old.gpus.clear();
  const Finding driver = find(gpu_findings(old, "NVRM version: 570"), "NVIDIA driver");
  EXPECT_EQ(driver.status, Status::warning);
  EXPECT_NE(driver.fix.find("580"), std::string::npos);
  gpu::CudaReport hidden = machine_in_order();
  hidden.gpus.clear();
  EXPECT_NE(find(gpu_findings(hidden, "NVRM version: 580"), "NVIDIA driver").fix.find("CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST(DoctorGpu, SlowLinksCopiesAndPagesAreWarnings) {
  gpu::CudaReport report = machine_in_order();
  report.gpus[0].link->width = 8;
  EXPECT_EQ(find(gpu_findings(report, "d"), "PCIe").status, Status::warning);
  report = machine_in_order();
  report.gpus[0].huge_pages->d2h = 20e9;
  EXPECT_EQ(find(gpu_findings(report, "d"), "copies").status, Status::warning);
  EXPECT_EQ(find(gpu_findings(report, "d"), "huge pages").status, Status::warning);
  report = machine_in_order();
  report.gpus[0].link.reset();
  EXPECT_EQ(find(gpu_findings(report, "d"), "PCIe").status, Status::note);
}

TEST(DoctorGpu, OldBusyAndBrokenGpusSaySo) {
  gpu::CudaReport report = machine_in_order();
  report.gpus[0].major = 7;
  EXPECT_EQ(find(gpu_findings(report, "d"), "device").status, Status::warning);
  report = machine_in_order();
  report.gpus[0].free = 1;
  EXPECT_EQ(find(gpu_findings(report, "d"), "device").status, Status::note);
  report = machine_in_order();
  report.gpus[0].error = "cudaSetDevice: cudaErrorDevicesUnavailable";
  EXPECT_EQ(gpu_findings(report, "d").size(), 3u);
}

TEST(DoctorGpu, PeersAreNamedWhenThereAreSeveralGpus) {
  gpu::CudaReport report = machine_in_order();
  report.gpus.push_back(report.gpus[0]);
  report.gpus[1].index = 1;
  report.gpus[0].peers = {1};
  EXPECT_EQ(find(gpu_findings(report, "d"), "peer access").value, "to GPU 1");
}

TEST(DoctorGpu, AProgramWithoutCudaSaysHowToGetIt) {
  const auto findings = gpu_findings({.built = false, .driver = 0, .runtime = 0, .error = "install the toolkit", .gpus = {}}, "NVRM");
  EXPECT_EQ(find(findings, "CUDA").fix, "install the toolkit");
}

}  // namespace
}  // namespace sluice::apps
