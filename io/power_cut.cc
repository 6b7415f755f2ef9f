#include "io/power_cut.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <utility>

#include "base/error.h"
#include "io/file.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPage = 4096;  // what a drive writes in one piece

std::pair<uint64_t, uint64_t> inode(const struct stat& info) {
  return {info.st_dev, info.st_ino};
}

std::string read_whole(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  SLUICE_CHECK(in.good(), path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_below(const fs::path& path, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

}  // namespace

// What happens to what may be lost.
class PowerCutRecorder::Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed), random_(seed) {}
  // Out of first, first+1, ..., last.
  size_t choose(size_t first, size_t last) {
    if (seed_ == 0) return first;
    if (seed_ == 1) return last;
    return first + random_() % (last - first + 1);
  }

 private:
  const uint64_t seed_;
  std::mt19937_64 random_;
};

PowerCutRecorder::PowerCutRecorder(fs::path root) : root_(fs::canonical(root)) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root_)) {
    if (entry.is_directory()) {
      names_[relative(entry.path())] = kFolder;
      continue;
    }
    struct stat info {};
    SLUICE_CHECK(stat(entry.path().c_str(), &info) == 0, entry.path().string());
    const auto [it, is_new] = by_inode_.try_emplace(inode(info), files_.size());
    if (is_new) files_.push_back({read_whole(entry.path()), std::nullopt});
    names_[relative(entry.path())] = it->second;
  }
}

size_t PowerCutRecorder::events() const {
  const std::lock_guard lock(mutex_);
  return position_;
}

std::string PowerCutRecorder::describe(size_t cut) const {
  constexpr const char* kNames[] = {"create",      "write",  "sync", "make folder",
                                    "sync folder", "rename", "exchange", "link", "remove"};
  const std::lock_guard lock(mutex_);
  for (const Event& event : events_)
    if (event.begin + 1 == cut || event.end + 1 == cut)
      return fmt::format("after {} of {} {} of {} ({} bytes at {})", event.begin + 1 == cut ? "begin" : "end",
                         cut, kNames[static_cast<size_t>(event.kind)], event.path.string(), event.data.size(),
                         event.offset);
  return "before the first event";
}

fs::path PowerCutRecorder::relative(const fs::path& path) const {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole == root_ ? fs::path() : whole.lexically_relative(root_);
}

size_t PowerCutRecorder::file_index(const File& file) {
  struct stat info {};
  SLUICE_CHECK(fstat(file.fd(), &info) == 0, file.path().string());
  const auto [it, is_new] = by_inode_.try_emplace(inode(info), files_.size());
  if (is_new) files_.push_back({read_whole(file.path()), std::nullopt});  // made without the observer
  return it->second;
}

size_t PowerCutRecorder::begin(Event event) {
  event.begin = position_++;
  events_.push_back(std::move(event));
  return events_.size() - 1;
}

void PowerCutRecorder::end(uint64_t token) {
  const std::lock_guard lock(mutex_);
  events_[token].end = position_++;
}

void PowerCutRecorder::instant(Event event) {
  const size_t index = begin(std::move(event));
  events_[index].end = events_[index].begin;
}

void PowerCutRecorder::created(const File& file, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  struct stat info {};
  SLUICE_CHECK(fstat(file.fd(), &info) == 0, file.path().string());
  by_inode_[inode(info)] = files_.size();  // the number of a removed file may be used again
  files_.push_back({"", bytes});
  instant({.kind = Kind::create, .file = files_.size() - 1, .path = relative(file.path())});
}

uint64_t PowerCutRecorder::write_begins(const File& file, uint64_t offset, std::span<const std::byte> data) {
  const std::lock_guard lock(mutex_);
  return begin({.kind = Kind::write,
                .file = file_index(file),
                .offset = offset,
                .data = std::string(reinterpret_cast<const char*>(data.data()), data.size()),
                .path = relative(file.path())});
}
void PowerCutRecorder::write_ended(uint64_t token) {
  end(token);
}

uint64_t PowerCutRecorder::sync_begins(const File& file) {
  const std::lock_guard lock(mutex_);
  return begin({.kind = Kind::sync, .file = file_index(file), .path = relative(file.path())});
}
void PowerCutRecorder::sync_ended(uint64_t token) {
  end(token);
}

void PowerCutRecorder::directory_made(const fs::path& directory) {
  const std::lock_guard lock(mutex_);
  instant({.kind = Kind::make_directory, .file = kFolder, .path = relative(directory)});
}
void PowerCutRecorder::directory_synced(const fs::path& directory) {
  const std::lock_guard lock(mutex_);
  instant({.kind = Kind::sync_directory, .path = relative(directory)});
}
void PowerCutRecorder::renamed(const fs::path& from, const fs::path& to) {
  const std::lock_guard lock(mutex_);
  instant({.kind = Kind::rename, .path = relative(from), .to = relative(to)});
}
void PowerCutRecorder::exchanged(const fs::path& a, const fs::path& b) {
  const std::lock_guard lock(mutex_);
  SLUICE_CHECK(a.parent_path() == b.parent_path(), "an exchange between folders");
  instant({.kind = Kind::exchange, .path = relative(a), .to = relative(b)});
}
void PowerCutRecorder::linked(const fs::path& from, const fs::path& to) {
  const std::lock_guard lock(mutex_);
  instant({.kind = Kind::link, .path = relative(from), .to = relative(to)});
}
void PowerCutRecorder::removed(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  instant({.kind = Kind::remove, .path = relative(path)});
}

bool PowerCutRecorder::synced_after(const Event& event, size_t cut) const {
  return std::any_of(events_.begin(), events_.end(), [&](const Event& sync) {
    return sync.kind == Kind::sync && sync.file == event.file && event.end != kNever &&
           sync.begin > event.end && sync.end < cut;
  });
}

// One change of names, as far as the changes before it that were lost allow.
void PowerCutRecorder::apply(const Event& change, Names& names) {
  const fs::path& path = change.path;
  const auto has_parent = [&](const fs::path& p) { return !p.has_parent_path() || names.count(p.parent_path()) != 0; };
  // Takes all names from `from` on away, and returns them as names below `to`.
  const auto take = [&](const fs::path& from, const fs::path& to) {
    Names moved;
    for (auto it = names.begin(); it != names.end();) {
      if (!is_below(it->first, from)) {
        ++it;
        continue;
      }
      moved[it->first == from ? to : to / it->first.lexically_relative(from)] = it->second;
      it = names.erase(it);
    }
    return moved;
  };
  switch (change.kind) {
    case Kind::create:
    case Kind::make_directory:
      if (has_parent(path)) names[path] = change.file;
      return;
    case Kind::link:
      if (const auto it = names.find(path); it != names.end() && has_parent(change.to)) names[change.to] = it->second;
      return;
    case Kind::exchange: {
      if (names.count(path) == 0 || names.count(change.to) == 0) return;
      Names first = take(path, change.to), second = take(change.to, path);
      names.merge(first);
      names.merge(second);
      return;
    }
    case Kind::rename:
    case Kind::remove: {
      if (names.count(path) == 0) return;
      Names moved = take(path, change.to);
      if (change.kind == Kind::rename && has_parent(change.to))
        for (const auto& [name, file] : moved) names[name] = file;
      return;
    }
    case Kind::write:
    case Kind::sync:
    case Kind::sync_directory: return;
  }
}

PowerCutRecorder::Names PowerCutRecorder::names_at(size_t cut, Dice& dice) const {
  std::map<fs::path, std::vector<const Event*>> by_folder;  // that holds the changed name
  std::map<fs::path, size_t> safe;                          // how many of these a sync made safe
  for (const Event& event : events_) {
    if (event.begin >= cut) break;
    if (event.kind == Kind::write || event.kind == Kind::sync) continue;
    if (event.kind == Kind::sync_directory) {
      safe[event.path] = by_folder[event.path].size();
      continue;
    }
    by_folder[(event.to.empty() ? event.path : event.to).parent_path()].push_back(&event);
  }
  std::vector<const Event*> kept;
  for (auto& [folder, changes] : by_folder) {
    const size_t count = dice.choose(safe[folder], changes.size());
    kept.insert(kept.end(), changes.begin(), changes.begin() + static_cast<ptrdiff_t>(count));
  }
  std::sort(kept.begin(), kept.end(), [](const Event* a, const Event* b) { return a->begin < b->begin; });

  Names names = names_;
  for (const Event* event : kept) apply(*event, names);
  return names;
}

std::string PowerCutRecorder::content_at(size_t file, size_t cut, Dice& dice) const {
  std::string content = files_[file].safe;
  if (files_[file].made) {
    const auto made = std::find_if(events_.begin(), events_.end(), [&](const Event& event) {
      return event.kind == Kind::create && event.file == file;
    });
    if (!synced_after(*made, cut) && dice.choose(0, 1) == 0) return "";
    content.assign(*files_[file].made, '\0');
  }
  for (const Event& event : events_) {
    if (event.begin >= cut) break;
    if (event.kind != Kind::write || event.file != file) continue;
    enum Fate : size_t { lost, torn, whole };
    const size_t fate = synced_after(event, cut) ? whole : dice.choose(lost, whole);
    for (uint64_t at = 0; at < event.data.size();) {
      const uint64_t to =
          std::min<uint64_t>(event.data.size(), (event.offset + at) / kPage * kPage + kPage - event.offset);
      if (fate == whole || (fate == torn && dice.choose(0, 1) == 1))
        content.replace(event.offset + at, to - at, event.data, at, to - at);
      at = to;
    }
  }
  return content;
}

void PowerCutRecorder::materialise(size_t cut, uint64_t seed, const fs::path& target) const {
  const std::lock_guard lock(mutex_);
  Dice dice(seed);
  fs::remove_all(target);
  fs::create_directories(target);
  std::map<size_t, fs::path> written;                     // first name of each file
  for (const auto& [name, file] : names_at(cut, dice)) {  // a folder sorts before what is in it
    const fs::path path = target / name;
    if (file == kFolder) {
      fs::create_directory(path);
    } else if (const auto [first, is_new] = written.try_emplace(file, path); !is_new) {
      fs::create_hard_link(first->second, path);
    } else {
      std::ofstream out(path, std::ios::binary);
      out << content_at(file, cut, dice);
      SLUICE_CHECK(out.flush().good(), path.string());
    }
  }
}

}  // namespace sluice::io
