#include "base/trace.h"

#include <fmt/format.h>

#include <fstream>
#include <map>

#include "base/error.h"

namespace sluice::base {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20)
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      result += c;
  }
  return result + '"';
}

}  // namespace

Trace::Trace() : start_(std::chrono::steady_clock::now()) {}

double Trace::now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Trace::add(const std::string& row, const std::string& name, double begin, double end, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  spans_.push_back({row, name, begin, end, bytes});
}

void Trace::write(const std::filesystem::path& file) const {
  const std::lock_guard lock(mutex_);
  std::ofstream out(file);
  out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\","
         "\"args\":{\"name\":\"sluice\"}}";
  std::map<std::string, size_t> rows;  // numbered in order of appearance, which viewers keep
  for (const Span& span : spans_) {
    const auto [it, is_new] = rows.try_emplace(span.row, rows.size() + 1);
    if (is_new)
      out << fmt::format(
          ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}",
          it->second, quoted(span.row));
    out << fmt::format(",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"name\":{},\"ts\":{:.3f},\"dur\":{:.3f}",
                       it->second, quoted(span.name), span.begin * 1e6, (span.end - span.begin) * 1e6);
    if (span.bytes != 0) out << fmt::format(",\"args\":{{\"bytes\":{}}}", span.bytes);
    out << '}';
  }
  out << "\n]}\n";
  if (!out.flush()) fail(ErrorKind::disk, "cannot write the trace to {}", file.string());
}

}  // namespace sluice::base
