#include "apps/tensorboard.h"

#include <array>
#include <bit>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace sluice::apps {
namespace {

static_assert(std::endian::native == std::endian::little);  // both formats are

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// The parts of the protobuf wire format that an Event needs.
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
std::string field(uint32_t number, Wire wire) { return varint(number << 3 | static_cast<uint32_t>(wire)); }
std::string bytes_field(uint32_t number, const std::string& data) { return field(number, kBytes) + varint(data.size()) + data; }

// time: seconds since 1970; 0 where the run did not say.
std::string scalar_event(double time, uint64_t step, const std::string& tag, double value) {
  const std::string entry = bytes_field(1, tag) + field(2, kFixed32) + raw(static_cast<float>(value));
  return field(1, kFixed64) + raw(time) + field(2, kVarint) + varint(step) + bytes_field(5, bytes_field(1, entry));
}

uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

double time_of(const StepFigures& step) {
  const auto found = step.values.find("time");
  return found == step.values.end() ? 0 : found->second;
}

std::string record(const std::string& data) {
  const std::string length = raw(static_cast<uint64_t>(data.size()));
  return length + raw(masked(crc32c(length))) + data + raw(masked(crc32c(data)));
}

}  // namespace

uint32_t crc32c(std::string_view data) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (const char c : data) crc = table[(crc ^ static_cast<uint8_t>(c)) & 255] ^ crc >> 8;
  return ~crc;
}

void write_tensorboard(const std::filesystem::path& folder, const RunMetrics& metrics) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::filesystem::path file = folder / "events.out.tfevents.0.sluice";
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << record(field(1, kFixed64) + raw(metrics.steps.empty() ? 0.0 : time_of(metrics.steps.front())) + bytes_field(3, "brain.Event:2"));
  for (const StepFigures& step : metrics.steps)
    for (const auto& [key, value] : step.values) {
      std::string tag = key;
      for (char& c : tag)
        if (c == '.') c = '/';
      if (key != "step" && key != "time") out << record(scalar_event(time_of(step), step.step, tag, value));
    }
  for (const EvalFigures& e : metrics.evaluations) out << record(scalar_event(e.time, e.step, "eval_loss", e.loss));
  out.close();
  if (!out) base::fail(base::ErrorKind::disk, "cannot write {}: {}", file.string(), std::strerror(errno));
}

}  // namespace sluice::apps
