#include "apps/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::apps {
namespace {

constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};  // Okabe and Ito: told apart by all
constexpr int kLeft = 64, kRight = 16, kTop = 48, kBottom = 40;
constexpr size_t kMost = 500;

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double v) { low = std::min(low, v), high = std::max(high, v); }
  bool empty() const { return low > high; }
  // So that the axis has a length and the line does not lie on its ends.
  void widen(double share) {
    const double margin = high > low ? (high - low) * share : std::max(std::abs(high) * 0.1, 1e-9);
    low -= margin, high += margin;
  }
};

// 1, 2 or 5 times a power of ten, for about `count` ticks.
double tick_step(const Range& range, int count) {
  const double raw = (range.high - range.low) / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

std::string number(double v, double step) {
  if (std::abs(v) < step / 1000) return "0";
  if (std::abs(v) >= 1e5 || std::abs(v) < 1e-3) return fmt::format("{:.2g}", v);
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return fmt::format("{:.{}f}", v, digits);
}

std::vector<std::pair<double, double>> thinned(const Series& series) {
  std::vector<std::pair<double, double>> points;
  for (const auto& p : series.points)
    if (std::isfinite(p.first) && std::isfinite(p.second)) points.push_back(p);
  if (series.dots || points.size() <= kMost) return points;
  std::vector<std::pair<double, double>> means;
  const size_t each = (points.size() + kMost - 1) / kMost;
  for (size_t i = 0; i < points.size(); i += each) {
    const size_t end = std::min(points.size(), i + each);
    double x = 0, y = 0;
    for (size_t j = i; j < end; ++j) x += points[j].first, y += points[j].second;
    means.emplace_back(x / static_cast<double>(end - i), y / static_cast<double>(end - i));
  }
  return means;
}

class Chart {
 public:
  Chart(const ChartOptions& options, const std::vector<Series>& series) : options_(options) {
    for (const Series& s : series) {
      lines_.push_back({s.name, thinned(s), s.dots});
      for (const auto& [x, y] : lines_.back().points) x_.add(x), y_.add(y);
    }
    if (options.from_zero && !y_.empty()) y_.add(0);
    if (y_.empty()) return;
    x_.widen(0);
    y_.widen(0.05);
    if (options.from_zero) y_.low = std::max(y_.low, 0.0);
  }

  std::string svg() {
    text_ = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
                        "font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" "
                        "fill=\"#fff\"/>\n<text x=\"{3}\" y=\"18\" font-weight=\"bold\">{2}</text>\n",
                        options_.width, options_.height, escaped(options_.title), kLeft);
    if (y_.empty()) {
      text_ += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"#777\">no data</text>\n", kLeft, options_.height / 2);
      return text_ + "</svg>\n";
    }
    axes();
    for (size_t i = 0; i < lines_.size(); ++i) draw(lines_[i], kColours[i % std::size(kColours)]);
    legend();
    return text_ + "</svg>\n";
  }

 private:
  double px(double x) const { return kLeft + (x - x_.low) / (x_.high - x_.low) * (options_.width - kLeft - kRight); }
  double py(double y) const { return options_.height - kBottom - (y - y_.low) / (y_.high - y_.low) * (options_.height - kTop - kBottom); }

  void axes() {
    const double bottom = options_.height - kBottom, right = options_.width - kRight;
    const double ystep = tick_step(y_, 5), xstep = tick_step(x_, 8);
    for (double y = std::ceil(y_.low / ystep) * ystep; y <= y_.high; y += ystep)
      text_ += fmt::format("<line x1=\"{0}\" x2=\"{1:.0f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/><text x=\"{3}\" y=\"{4:.1f}\" "
                           "text-anchor=\"end\" fill=\"#555\">{5}</text>\n",
                           kLeft, right, py(y), kLeft - 6, py(y) + 4, number(y, ystep));
    for (double x = std::ceil(x_.low / xstep) * xstep; x <= x_.high; x += xstep)
      text_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\" fill=\"#555\">{}</text>\n", px(x), bottom + 16, number(x, xstep));
    text_ += fmt::format("<line x1=\"{0}\" x2=\"{1:.0f}\" y1=\"{2:.0f}\" y2=\"{2:.0f}\" stroke=\"#555\"/>\n<text x=\"{1:.0f}\" y=\"{3:.0f}\" "
                         "text-anchor=\"end\" fill=\"#555\">{4}</text>\n<text x=\"{0}\" y=\"38\" fill=\"#555\" text-anchor=\"end\">{5}</text>\n",
                         kLeft, right, bottom, bottom + 32, escaped(options_.x), escaped(options_.y));
  }

  void draw(const Series& line, const char* colour) {
    if (line.dots) {
      for (const auto& [x, y] : line.points)
        text_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>", px(x), py(y), colour);
      text_ += "\n";
      return;
    }
    if (line.points.empty()) return;
    text_ += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"", colour);
    for (const auto& [x, y] : line.points) text_ += fmt::format("{:.1f},{:.1f} ", px(x), py(y));
    text_ += "\"/>\n";
  }

  void legend() {
    double x = kLeft + 8;
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (lines_[i].points.empty()) continue;
      text_ += fmt::format("<rect x=\"{:.0f}\" y=\"30\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{:.0f}\" y=\"39\">{}</text>\n", x,
                           kColours[i % std::size(kColours)], x + 14, escaped(lines_[i].name));
      x += 30 + 7.0 * static_cast<double>(lines_[i].name.size());
    }
  }

  const ChartOptions& options_;
  std::vector<Series> lines_;
  Range x_, y_;
  std::string text_;
};

}  // namespace

std::string svg_chart(const ChartOptions& options, const std::vector<Series>& series) { return Chart(options, series).svg(); }

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

}  // namespace sluice::apps
