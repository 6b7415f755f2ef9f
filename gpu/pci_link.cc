#include "gpu/pci_link.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>

namespace sluice::gpu {
namespace {

constexpr std::array kGigatransfers{2.5, 5.0, 8.0, 16.0, 32.0, 64.0};  // by generation

// The first number of a file such as "32.0 GT/s PCIe".
std::optional<double> read_number(const std::filesystem::path& file) {
  std::ifstream in(file);
  double value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

int generation_of(double gigatransfers) {
  const auto at = std::find(kGigatransfers.begin(), kGigatransfers.end(), gigatransfers);
  return at == kGigatransfers.end() ? 0 : static_cast<int>(at - kGigatransfers.begin()) + 1;
}

double rate(int generation, int width) {
  if (generation == 0) return 0;
  const double encoding = generation < 3 ? 8.0 / 10 : generation < 6 ? 128.0 / 130 : 242.0 / 256;
  return kGigatransfers[static_cast<size_t>(generation - 1)] * 1e9 / 8 * encoding * width;
}

}  // namespace

double PciLink::bytes_per_s() const { return rate(generation, width); }
double PciLink::max_bytes_per_s() const { return rate(max_generation, max_width); }

std::optional<PciLink> read_pci_link(const std::string& bus_id, const std::filesystem::path& devices) {
  std::string name = bus_id;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::filesystem::path folder = devices / name;
  const auto speed = read_number(folder / "current_link_speed"), width = read_number(folder / "current_link_width");
  if (!speed || !width) return std::nullopt;
  PciLink link;
  link.generation = generation_of(*speed);
  link.width = static_cast<int>(*width);
  link.max_generation = generation_of(read_number(folder / "max_link_speed").value_or(*speed));
  link.max_width = static_cast<int>(read_number(folder / "max_link_width").value_or(*width));
  link.numa_node = static_cast<int>(read_number(folder / "numa_node").value_or(-1));
  return link;
}

}  // namespace sluice::gpu
