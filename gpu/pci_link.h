// How a PCI device is connected, as the kernel says (sysfs).
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace sluice::gpu {

struct PciLink {
  int generation = 0, width = 0;          // as it is now: an idle GPU may have slowed its link down
  int max_generation = 0, max_width = 0;  // what the device can do
  int numa_node = -1;                     // -1: not known
  double bytes_per_s() const;             // one way, of the present link, without protocol overhead
  double max_bytes_per_s() const;
};

// bus_id: "0000:17:00.0". No value when the kernel does not say (a container without sysfs, a virtual device).
std::optional<PciLink> read_pci_link(const std::string& bus_id, const std::filesystem::path& devices = "/sys/bus/pci/devices");

}  // namespace sluice::gpu
