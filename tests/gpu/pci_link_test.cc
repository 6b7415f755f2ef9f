#include "gpu/pci_link.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace sluice::gpu {
namespace {

namespace fs = std::filesystem;

class PciLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "sluice-pci-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    devices_ = name;
  }
  void TearDown() override { fs::remove_all(devices_); }
  void put(const std::string& file, const std::string& text) {
    fs::create_directories(devices_ / "0000:3b:00.0");
    std::ofstream(devices_ / "0000:3b:00.0" / file) << text << "\n";
  }
  fs::path devices_;
};

TEST_F(PciLinkTest, GenerationWidthAndRateComeFromTheKernelsText) {
  put("current_link_speed", "16.0 GT/s PCIe");
  put("current_link_width", "8");
  put("max_link_speed", "32.0 GT/s PCIe");
  put("max_link_width", "16");
  put("numa_node", "1");
  const auto link = read_pci_link("0000:3B:00.0", devices_);
  ASSERT_TRUE(link);
  EXPECT_EQ(link->generation, 4);
  EXPECT_EQ(link->width, 8);
  EXPECT_EQ(link->max_generation, 5);
  EXPECT_EQ(link->max_width, 16);
  EXPECT_EQ(link->numa_node, 1);
  EXPECT_NEAR(link->bytes_per_s(), 15.75e9, 0.01e9);
  EXPECT_NEAR(link->max_bytes_per_s(), 63.0e9, 0.1e9);
}

TEST_F(PciLinkTest, WhatIsMissingIsNotGuessed) {
  EXPECT_FALSE(read_pci_link("0000:3b:00.0", devices_));
  put("current_link_speed", "Unknown");
  put("current_link_width", "0");
  EXPECT_FALSE(read_pci_link("0000:3b:00.0", devices_));
  put("current_link_speed", "8.0 GT/s PCIe");
  put("current_link_width", "16");
  const auto link = read_pci_link("0000:3b:00.0", devices_);
  ASSERT_TRUE(link);
  EXPECT_EQ(link->max_generation, 3);  // the kernel says nothing better
  EXPECT_EQ(link->numa_node, -1);
}

}  // namespace
}  // namespace sluice::gpu
