#include "apps/report_memory.h"

#include <fmt/format.h>

#include "apps/svg_bars.h"
#include "apps/svg_chart.h"
#include "base/units.h"

namespace sluice::apps {
namespace {

std::string bytes_text(double bytes) { return base::format_bytes(static_cast<uint64_t>(bytes)); }

uint64_t have(const engine::MemoryReport& memory, const std::string& place) {
  return place == "gpu" ? memory.gpu_have : place == "host" ? memory.host_have : memory.disk_have;
}

std::string known(const engine::MemoryRow& row) {
  return std::string(how_known(row)) + (row.beside ? ", beside the total" : "");
}

std::string table_row(const std::string& place, const std::string& purpose, const std::string& need, const std::string& there,
                      const std::string& note) {
  return fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", place, escaped(purpose), need, there, note);
}

}  // namespace

std::string memory_section(const RunRecord& run) {
  if (!run.memory) return "";
  const RunMemory& memory = *run.memory;
  std::string table = "<table>\n<tr><th>place</th><th>purpose</th><th>need</th><th>have</th><th></th></tr>\n";
  std::vector<Bar> bars;
  for (const char* place : {"gpu", "host", "disk"}) {
    Bar bar{place, {}, static_cast<double>(have(memory.planned, place)), 0};
    for (const engine::MemoryRow& row : memory.planned.rows) {
      if (row.place != place) continue;
      table += table_row(place, row.purpose, base::format_bytes(row.bytes), "", known(row));
      if (!row.beside) bar.parts.emplace_back(row.purpose, static_cast<double>(row.bytes));
    }
    table += table_row(place, "total", base::format_bytes(memory.need(place)), bar.limit > 0 ? bytes_text(bar.limit) : "?", "");
    if (memory.peaks && bar.name != "disk") {
      bar.mark = static_cast<double>(bar.name == "gpu" ? memory.peaks->gpu : memory.peaks->host);
      table += table_row(place, "reached", bytes_text(bar.mark), "", "measured");
    }
    bars.push_back(std::move(bar));
  }
  if (memory.peaks)
    table += table_row("host", "the whole process, at most", base::format_bytes(memory.peaks->process.resident_peak), "", "measured");
  return "<h2>Memory</h2>\n" + svg_bars("Need of each memory; the frame is what there is, the line what was reached", bars, bytes_text) + table + "</table>\n";
}

}  // namespace sluice::apps
