#include "engine/hf_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/bf16.h"
#include "base/fp16.h"
#include "base/units.h"
#include "engine/config_text.h"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;
using base::ErrorKind;
using base::fail;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kMark = ".sluice-export";  // in OUT.tmp: says that it is ours to remove
constexpr size_t kCopyBytes = 1 << 20;

// Weights in any format: never copied, since they would be those of before the training.
bool is_weight_file(const std::string& name) {
  constexpr std::array<std::string_view, 12> kEndings = {".safetensors", ".safetensors.index.json",
                                                         ".bin",         ".bin.index.json",
                                                         ".pt",          ".pth",
                                                         ".ckpt",        ".gguf",
                                                         ".h5",          ".msgpack",
                                                         ".ot",          ".onnx"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](auto e) { return name.ends_with(e); }) ||
         name.ends_with(".onnx_data");
}

// Regular files below the source that come along, relative; links to files are followed, links to directories
// are not.
std::vector<fs::path> other_files(const fs::path& source) {
  std::vector<fs::path> found;
  for (auto it = fs::recursive_directory_iterator(source); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename();
    if (it->is_directory() && (it->is_symlink() || name == ".git" || name == ".cache")) {
      it.disable_recursion_pending();
    } else if (it->is_symlink() && !fs::exists(it->path())) {
      fail(ErrorKind::model, "{} is a link to a file that is gone; download the model again",
           it->path().string());
    } else if (it->is_regular_file() && !is_weight_file(name)) {
      found.push_back(it->path().lexically_relative(source));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool good = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!good)
    fail(ErrorKind::disk, "cannot flush the directory {}: {}", folder.string(), std::strerror(error));
}

void copy_whole(const fs::path& from, const fs::path& to) {
  const PlainFile in = PlainFile::open(from, ErrorKind::model);
  PlainFile out = PlainFile::create(to);
  std::vector<char> buffer(std::min<uint64_t>(kCopyBytes, in.size()));
  for (uint64_t at = 0; at < in.size();) {
    const size_t bytes = std::min<uint64_t>(buffer.size(), in.size() - at);
    in.read_at(at, buffer.data(), bytes);
    out.append(buffer.data(), bytes);
    at += bytes;
  }
  out.sync();
}

void write_text(const fs::path& path, const std::string& text) {
  PlainFile out = PlainFile::create(path);
  out.append(text.data(), text.size());
  out.sync();
}

const char* torch_name(std::string_view dtype) {
  return dtype == "BF16" ? "bfloat16" : dtype == "F16" ? "float16" : "float32";
}

// Makes an empty OUT.tmp; one left by an export that was killed is removed first.
void make_temporary(const fs::path& folder) {
  if (fs::exists(folder)) {
    if (!fs::exists(folder / kMark))
      fail(ErrorKind::config, "{} exists and was not made by an export; remove it, or choose another output",
           folder.string());
    fs::remove_all(folder);
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorKind::disk, "cannot create {}: {}", folder.string(), error.message());
  write_text(folder / kMark, "");
}

}  // namespace

HfWriter::HfWriter(const HfReader& source, const std::vector<ExpectedTensor>& expected, ExportOptions options)
    : source_(source), options_(std::move(options)) {
  for (const ExpectedTensor& e : expected) parameters_.push_back(e.name);
  std::sort(parameters_.begin(), parameters_.end());
  for (const WeightFile& f : source_.files()) {
    OutFile out{f.name, f.header};
    uint64_t at = 0;
    for (TensorEntry& t : out.header.tensors) {
      if (!options_.dtype.empty() && std::binary_search(parameters_.begin(), parameters_.end(), t.name)) {
        new_types_ |= t.dtype != options_.dtype;
        t.dtype = options_.dtype;
      }
      const uint64_t bytes =
          dtype_bits(t.dtype) % 8 == 0 ? t.count() * (dtype_bits(t.dtype) / 8) : t.end - t.begin;
      t.begin = at;
      t.end = at += bytes;
    }
    auto& metadata = out.header.metadata;  // transformers insists on the format
    if (std::none_of(metadata.begin(), metadata.end(), [](const auto& m) { return m.first == "format"; }))
      metadata.emplace_back("format", "pt");
    files_.push_back(std::move(out));
  }
}

uint64_t HfWriter::weight_bytes() const {
  uint64_t bytes = 0;
  for (const OutFile& f : files_)
    for (const TensorEntry& t : f.header.tensors) bytes += t.end - t.begin;
  return bytes;
}

void HfWriter::check_room(uint64_t other_bytes) const {
  const uint64_t need = weight_bytes() + other_bytes + (16 << 20);
  const uint64_t have = fs::space(temporary_).available;
  if (need > have)
    fail(ErrorKind::disk,
         "no room to export to {}: need {}, have {}. Free space, or choose an output on another drive",
         options_.out.string(), base::format_bytes(need), base::format_bytes(have));
}

void HfWriter::write(const ProduceWeights& produce) {
  const fs::path out = fs::absolute(options_.out).lexically_normal();
  const fs::path target = out.has_filename() ? out : out.parent_path();
  try {
    if (fs::exists(target) && !(fs::is_directory(target) && fs::is_empty(target)))
      fail(ErrorKind::config,
           "the output {} exists and is not an empty directory; remove it, or choose another",
           target.string());
    const fs::path source = fs::canonical(source_.folder()), placed = fs::weakly_canonical(target);
    if (std::mismatch(source.begin(), source.end(), placed.begin(), placed.end()).first == source.end())
      fail(ErrorKind::config, "the output {} lies inside the source model {}; choose another",
           target.string(), source.string());
    temporary_ = target;
    temporary_ += ".tmp";
    make_temporary(temporary_);
    try {
      write_folder(produce);
      fs::rename(temporary_, target);
      sync_folder(target.parent_path());
    } catch (...) {
      std::error_code ignored;
      fs::remove_all(temporary_, ignored);
      throw;
    }
  } catch (const fs::filesystem_error& e) {
    fail(ErrorKind::disk, "export to {} failed: {}", target.string(), e.what());
  }
}

void HfWriter::write_folder(const ProduceWeights& produce) {
  const fs::path& source = source_.folder();
  const std::vector<fs::path> others = other_files(source);
  uint64_t other_bytes = 0;
  for (const fs::path& file : others) other_bytes += fs::file_size(source / file);
  check_room(other_bytes);

  done_ = 0;
  for (const OutFile& f : files_) write_weights(f, produce);
  if (fs::exists(source / kIndex) && !(files_.size() == 1 && files_[0].name == "model.safetensors"))
    write_index();
  for (const fs::path& file : others) {
    fs::create_directories((temporary_ / file).parent_path());
    if (file != "config.json") copy_whole(source / file, temporary_ / file);
  }
  const std::string config = read_text_file(source / "config.json", ErrorKind::model);
  write_text(temporary_ / "config.json",
             with_twin_keys(new_types_ ? with_dtype(config, torch_name(options_.dtype)) : config));
  for (const auto& entry : fs::recursive_directory_iterator(temporary_))
    if (entry.is_directory()) sync_folder(entry.path());
  fs::remove(temporary_ / kMark);
  sync_folder(temporary_);
}

void HfWriter::write_weights(const OutFile& file, const ProduceWeights& produce) {
  PlainFile out = PlainFile::create(temporary_ / file.name);
  const std::string header = write_safetensors_header(file.header);
  out.append(header.data(), header.size());
  for (const TensorEntry& t : file.header.tensors) {
    if (std::binary_search(parameters_.begin(), parameters_.end(), t.name))
      write_tensor(out, t, produce);
    else
      copy_tensor(out, t);
  }
  out.sync();
}

void HfWriter::write_tensor(PlainFile& out, const TensorEntry& tensor, const ProduceWeights& produce) {
  std::vector<float> values(std::min(options_.piece, tensor.count()));
  std::vector<uint16_t> narrow(tensor.dtype == "F32" ? 0 : values.size());
  for (uint64_t first = 0; first < tensor.count(); first += values.size()) {
    const std::span<float> piece(values.data(), std::min<uint64_t>(values.size(), tensor.count() - first));
    produce(tensor.name, first, piece);
    if (tensor.dtype == "F32") {
      out.append(piece.data(), piece.size_bytes());
    } else {
      const bool half = tensor.dtype == "F16";
      for (size_t i = 0; i < piece.size(); ++i)
        narrow[i] = half ? base::float_to_fp16(piece[i]) : base::split(piece[i]).hi;
      out.append(narrow.data(), piece.size() * 2);
    }
    report(piece.size() * (tensor.dtype == "F32" ? 4 : 2));
  }
}

void HfWriter::copy_tensor(PlainFile& out, const TensorEntry& tensor) {
  std::vector<char> buffer(std::min<uint64_t>(kCopyBytes, tensor.end - tensor.begin));
  for (uint64_t at = 0; at < tensor.end - tensor.begin; at += buffer.size()) {
    const size_t bytes = std::min<uint64_t>(buffer.size(), tensor.end - tensor.begin - at);
    source_.read_raw(tensor.name, at, buffer.data(), bytes);
    out.append(buffer.data(), bytes);
    report(bytes);
  }
}

void HfWriter::write_index() {
  const std::string text = read_text_file(source_.folder() / kIndex, ErrorKind::model);
  if (!new_types_) return write_text(temporary_ / kIndex, text);
  auto json = nlohmann::ordered_json::parse(text);
  json["metadata"]["total_size"] = weight_bytes();
  write_text(temporary_ / kIndex, json.dump(2) + "\n");
}

void HfWriter::report(uint64_t bytes) {
  done_ += bytes;
  if (options_.progress) options_.progress(done_, weight_bytes());
}

}  // namespace sluice::engine
