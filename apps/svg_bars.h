// Stacked bars as SVG text: what something is made of, beside what there is of it.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace sluice::apps {

struct Bar {
  std::string name;
  std::vector<std::pair<std::string, double>> parts;
  double limit = 0;  // drawn as a frame; 0: unknown
  double mark = 0;   // drawn as a line, such as a peak; 0: none
};

// Each bar has a scale of its own: the largest of its sum, limit and mark. Parts are named in a tooltip and, where there is room, in
// the bar. text(value): how a number is written.
std::string svg_bars(const std::string& title, const std::vector<Bar>& bars, std::string (*text)(double value), int width = 760);

}  // namespace sluice::apps
