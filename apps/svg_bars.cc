#include "apps/svg_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "apps/svg_chart.h"

namespace sluice::apps {
namespace {

constexpr std::array kColours{"#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#bbbbbb"};
constexpr int kLeft = 64, kRight = 16, kTop = 30, kBar = 22, kRow = 44;
constexpr double kLetter = 6.5;

std::string bar_svg(const Bar& bar, double y, int width, std::string (*text)(double)) {
  double sum = 0;
  for (const auto& [name, value] : bar.parts) sum += value;
  const double most = std::max({sum, bar.limit, bar.mark}), scale = most > 0 ? (width - kLeft - kRight) / most : 0;
  std::string svg = fmt::format("<text x=\"{}\" y=\"{:.0f}\" text-anchor=\"end\">{}</text>\n", kLeft - 8, y + 15, escaped(bar.name));
  double x = kLeft;
  for (size_t i = 0; i < bar.parts.size(); ++i) {
    const auto& [name, value] = bar.parts[i];
    const double wide = value * scale;
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{}: {}</title></rect>\n", x, y,
                       wide, kBar, kColours[i % kColours.size()], escaped(name), escaped(text(value)));
    if (wide > kLetter * static_cast<double>(name.size()) + 8)
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" pointer-events=\"none\">{}</text>\n", x + 4, y + 15, escaped(name));
    x += wide;
  }
  std::string label = text(sum);
  if (bar.limit > 0) {
    svg += fmt::format("<rect x=\"{}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{}\" fill=\"none\" stroke=\"#555\"/>\n", kLeft, y,
                       bar.limit * scale, kBar);
    label += " of " + text(bar.limit);
  }
  if (bar.mark > 0) {
    const double at = kLeft + bar.mark * scale;
    svg += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\" stroke=\"#000\" stroke-width=\"2\"/>\n", at, y - 3,
                       y + kBar + 3);
    label += ", at most " + text(bar.mark);
  }
  return svg + fmt::format("<text x=\"{}\" y=\"{:.0f}\" fill=\"#555\">{}</text>\n", kLeft, y + kBar + 13, escaped(label));
}

}  // namespace

std::string svg_bars(const std::string& title, const std::vector<Bar>& bars, std::string (*text)(double), int width) {
  const int height = kTop + static_cast<int>(bars.size()) * kRow;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" font-family=\"sans-serif\" "
      "font-size=\"12\" role=\"img\">\n<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n<text x=\"{3}\" y=\"18\" "
      "font-weight=\"bold\">{2}</text>\n",
      width, height, escaped(title), kLeft);
  for (size_t i = 0; i < bars.size(); ++i) svg += bar_svg(bars[i], kTop + static_cast<double>(i) * kRow, width, text);
  return svg + "</svg>\n";
}

}  // namespace sluice::apps
