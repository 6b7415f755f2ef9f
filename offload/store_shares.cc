#include "offload/store_shares.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"

namespace sluice::offload {
namespace {

namespace fs = std::filesystem;

std::string shares_text(const std::vector<fs::path>& paths, const std::vector<double>& rates, const std::vector<uint32_t>& shares) {
  uint32_t all = 0;
  for (const uint32_t share : shares) all += share;
  std::vector<std::string> drives;
  for (size_t d = 0; d < paths.size(); ++d)
    drives.push_back(fmt::format("{} {:.3g} GB/s: {:.0f} %", paths[d].string(), rates[d] / 1e9, 100.0 * shares[d] / all));
  return fmt::format("{}", fmt::join(drives, ", "));
}

}  // namespace

std::vector<uint32_t> shares_of(const std::vector<double>& rates) {
  SLUICE_CHECK(!rates.empty() && std::ranges::all_of(rates, [](double r) { return r > 0; }), "rates of drives are positive");
  const double fastest = *std::ranges::max_element(rates);
  std::vector<uint32_t> shares;
  for (const double rate : rates) shares.push_back(static_cast<uint32_t>(std::max(1.0, std::round(100 * rate / fastest))));
  return shares;
}

std::vector<uint32_t> choose_shares(const StoreOptions& options) {
  const size_t drives = std::max<size_t>(options.paths.size(), 1);
  if (drives == 1) return {1};
  SLUICE_CHECK(options.drive_rates.empty() || options.drive_rates.size() == drives, "a rate for each drive");
  if (!options.drive_rates.empty()) return shares_of(options.drive_rates);
  const std::vector<double> rates = options.measure_drives ? options.measure_drives(options.paths) : std::vector<double>();
  if (rates.empty()) return std::vector<uint32_t>(drives, 1);
  const std::vector<uint32_t> shares = shares_of(rates);
  spdlog::info("the store is dealt by what its drives do together, reading and writing in turn ({}); storage.drive_rates says otherwise",
               shares_text(options.paths, rates, shares));
  return shares;
}

bool wants_other_shares(const StoreOptions& options, const StoreFiles& files) {
  if (options.drive_rates.empty() || !files.in_place || options.paths.size() < 2) return false;
  const std::vector<uint32_t> wanted = shares_of(options.drive_rates);
  const std::vector<uint32_t> stored = shares_of({files.stored.shares.begin(), files.stored.shares.end()});  // {1, 1} deals as {100, 100} does
  for (size_t d = 0; d < files.folders.size(); ++d)
    for (size_t p = 0; p < options.paths.size(); ++p)
      if (fs::weakly_canonical(files.folders[d]).parent_path() == fs::weakly_canonical(options.paths[p]) && stored[d] != wanted[p])
        return true;
  return false;
}

}  // namespace sluice::offload
