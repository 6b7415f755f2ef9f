#include "configs/machine_profile.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "configs/keys.h"
#include "configs/rate_codec.h"

namespace sluice::configs {
namespace {

using base::ErrorKind;
using offload::Machine;

struct Row {
  std::string path;  // "disk.read"
  std::string allowed;
  std::function<bool(Machine&, const Json&)> read;  // false: not allowed
  std::function<Json(const Machine&)> write;        // null: unknown
};

template <class T>
Row row(std::string path, const Codec<T>& codec, T Machine::*member) {
  return {std::move(path), codec.allowed,
          [codec, member](Machine& machine, const Json& value) {
            const std::optional<T> read = codec.read(value);
            if (read) machine.*member = *read;
            return read.has_value();
          },
          [codec, member](const Machine& machine) { return codec.write(machine.*member); }};
}

const std::vector<Row>& rows() {
  static const std::vector<Row> table = [] {
    const auto bandwidth = rate("B/s");
    const auto seconds = number({0, 60}), share = number({0, 1});
    const auto size = bytes();
    return std::vector<Row>{
        row("name", text(), &Machine::name),
        row("assumed", flag(), &Machine::assumed),
        {"busy", text().allowed,
         [](Machine& m, const Json& value) {
           if (!value.is_string()) return false;
           m.busy = value.get<std::string>();
           return true;
         },
         [](const Machine& m) { return m.busy.empty() ? Json(nullptr) : Json(m.busy); }},
        row("disk.read", bandwidth, &Machine::disk_read),
        row("disk.write", bandwidth, &Machine::disk_write),
        row("disk.mixed", bandwidth, &Machine::disk_mixed),
        row("disk.latency", seconds, &Machine::disk_latency),
        row("disk.flush", seconds, &Machine::flush),
        row("copy.h2d", bandwidth, &Machine::h2d),
        row("copy.d2h", bandwidth, &Machine::d2h),
        row("copy.both", bandwidth, &Machine::copy_both),
        row("copy.latency", seconds, &Machine::copy_latency),
        row("net.rate", bandwidth, &Machine::net),
        row("net.latency", seconds, &Machine::net_latency),
        row("dram", bandwidth, &Machine::dram),
        row("adam.rate", rate("param/s"), &Machine::adam),
        row("adam.latency", seconds, &Machine::update_latency),
        row("compute.rate", rate("FLOP/s"), &Machine::compute),
        row("compute.enqueue", seconds, &Machine::enqueue),
        row("compute.memory_rate", bandwidth, &Machine::device_memory_rate),
        row("cores.compute", share, &Machine::compute_cores),
        row("cores.update", share, &Machine::update_cores),
        row("cores.h2d", share, &Machine::h2d_cores),
        row("cores.d2h", share, &Machine::d2h_cores),
        row("memory.gpu", size, &Machine::gpu_bytes),
        row("memory.host", size, &Machine::host_bytes),
        row("memory.disk", size, &Machine::disk_bytes),
        row("memory.runtime", size, &Machine::runtime_bytes),
    };
  }();
  return table;
}

const Row* find_row(std::string_view path) {
  for (const Row& r : rows())
    if (r.path == path) return &r;
  return nullptr;
}

bool is_profile_section(std::string_view path) {
  for (const Row& r : rows())
    if (r.path.size() > path.size() && r.path.starts_with(path) && r.path[path.size()] == '.') return true;
  return false;
}

std::string nearest_row(std::string_view path) {
  const Row* best = nullptr;
  for (const Row& r : rows())
    if (!best || edit_distance(path.substr(0, 80), r.path) < edit_distance(path.substr(0, 80), best->path))
      best = &r;
  return best->path;
}

struct Reader {
  const std::string& where;
  const JsonText& text;
  Machine& machine;

  std::string at(const std::string& path) const {
    const auto line = text.lines.find(path);
    return line == text.lines.end() ? where : fmt::format("{}:{}", where, line->second);
  }
  void read(const std::string& path, const Json& value) const {
    if (const Row* r = find_row(path)) {
      if (!value.is_null() && !r->read(machine, value))
        base::fail(ErrorKind::config, "{}: {} = {}: not allowed; allowed: {}", at(path), path, show(value),
                   r->allowed);
      return;
    }
    if (!path.empty() && !is_profile_section(path))
      base::fail(ErrorKind::config,
                 "{}: unknown key \"{}\" in a machine profile; the nearest known key is \"{}\"", at(path),
                 path, nearest_row(path));
    if (!value.is_object())
      base::fail(ErrorKind::config, "{}: {} = {}: a section of keys in braces is needed", at(path),
                 path.empty() ? "the profile" : path, show(value));
    for (const auto& [name, item] : value.items()) read(path.empty() ? name : path + "." + name, item);
  }
};

}  // namespace

Machine parse_machine(std::string_view text, const std::string& where) {
  const JsonText parsed = parse_json(text, where);
  Machine machine;
  Reader{where, parsed, machine}.read("", parsed.value);
  if (machine.name.empty()) machine.name = std::filesystem::path(where).stem().string();
  return machine;
}

Machine read_machine(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) base::fail(ErrorKind::config, "the machine profile {} cannot be read", file.string());
  return parse_machine(text.str(), file.string());
}

Json machine_json(const Machine& machine) {
  Json document = Json::object();
  for (const Row& r : rows()) {
    const size_t dot = r.path.find('.');
    const Json value = r.write(machine);
    if (value.is_null()) continue;
    if (dot == std::string::npos) {
      document[r.path] = value;
    } else {
      document[r.path.substr(0, dot)][r.path.substr(dot + 1)] = value;
    }
  }
  return document;
}

void write_machine(const Machine& machine, const std::filesystem::path& file) {
  const std::filesystem::path fresh = file.string() + fmt::format(".{}", getpid());
  {
    std::ofstream out(fresh);
    out << machine_json(machine).dump(2) << '\n';
    if (!out.flush()) base::fail(ErrorKind::disk, "cannot write {}", fresh.string());
  }
  std::error_code error;
  std::filesystem::rename(fresh, file, error);
  if (error) base::fail(ErrorKind::disk, "cannot write {}: {}", file.string(), error.message());
}

Machine find_machine(const std::string& name_or_file) {
  std::string names;
  for (const Machine& machine : builtin_machines()) {
    if (machine.name == name_or_file) return machine;
    names += (names.empty() ? "" : ", ") + machine.name;
  }
  if (std::filesystem::exists(name_or_file)) return read_machine(name_or_file);
  base::fail(ErrorKind::config,
             "--machine {}: neither a file nor a built-in machine; the built-in ones are {}", name_or_file,
             names);
}

}  // namespace sluice::configs
