// Line charts as SVG text, for pages that need no network.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace sluice::apps {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending; what is not finite is left out
  bool dots = false;                              // points of their own instead of a line
};

struct ChartOptions {
  std::string title, x, y;   // y: the unit
  bool from_zero = false;    // the y axis includes 0
  int width = 760, height = 260;
};

// At most some 500 points of a line are drawn: means of neighbours. Without any point: a box that says so.
std::string svg_chart(const ChartOptions& options, const std::vector<Series>& series);

// Text as XML and HTML want it.
std::string escaped(const std::string& text);

}  // namespace sluice::apps
