// Power-cut simulation: records what is done to files, then builds states that a disk may be in after losing
// power.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "io/file_observer.h"

namespace sluice::io {

// Use: make one for a folder; run the code under test with it as the observer of its files
// (FileOptions::observer) and of its changes of names (io/directory.h); close everything; then for each cut
// in 0..events() and a few seeds, materialise() and see whether the code recovers. One recorded run serves
// all cuts. Thread-safe. Meant for small files: it keeps every byte written in memory.
//
// What may be lost:
// - A write is safe once a sync of its file that began after the write had ended has itself ended. Every
// other write that
//   had begun may be on disk in whole, not at all, or in any choice of its 4 KiB pages.
// - A change of names is safe once its parent folder was synced after it. Of the others, each folder keeps
// some first ones.
// - A file that was never synced since it was created is all there (zeros where nothing was written), or
// empty.
class PowerCutRecorder final : public FileObserver {
 public:
  // All that is below root now counts as safe. What happens outside of it is ignored.
  explicit PowerCutRecorder(std::filesystem::path root);

  size_t events() const;
  std::string describe(size_t cut) const;  // the last event before the cut, for messages

  // Replaces `target` (root itself is fine once its files are closed) by a state that is possible when the
  // power goes after the first `cut` events. seed 0: all that may be lost is lost; 1: nothing is; others: by
  // chance.
  void materialise(size_t cut, uint64_t seed, const std::filesystem::path& target) const;

  void created(const File& file, uint64_t bytes) override;
  uint64_t write_begins(const File& file, uint64_t offset, std::span<const std::byte> data) override;
  void write_ended(uint64_t token) override;
  uint64_t sync_begins(const File& file) override;
  void sync_ended(uint64_t token) override;
  void directory_made(const std::filesystem::path& directory) override;
  void directory_synced(const std::filesystem::path& directory) override;
  void renamed(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void exchanged(const std::filesystem::path& a, const std::filesystem::path& b) override;
  void linked(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void removed(const std::filesystem::path& path) override;

 private:
  static constexpr size_t kNever = ~size_t{0};
  static constexpr size_t kFolder = ~size_t{0} - 1;  // in place of a file index
  enum class Kind { create, write, sync, make_directory, sync_directory, rename, exchange, link, remove };
  struct Event {
    Kind kind;
    size_t begin = 0, end = kNever;  // positions in the sequence of begins and ends
    size_t file = 0;                 // index into files_
    uint64_t offset = 0;
    std::string data;
    std::filesystem::path path, to;  // relative to root
  };
  struct Content {
    std::string safe;              // before the recording
    std::optional<uint64_t> made;  // size, when it was created during the recording
  };
  using Names = std::map<std::filesystem::path, size_t>;  // to an index into files_, or kFolder
  class Dice;

  size_t file_index(const File& file);
  size_t begin(Event event);
  void end(uint64_t token);
  void instant(Event event);
  std::filesystem::path relative(const std::filesystem::path& path) const;
  bool synced_after(const Event& event, size_t cut) const;
  static void apply(const Event& change, Names& names);
  Names names_at(size_t cut, Dice& dice) const;
  std::string content_at(size_t file, size_t cut, Dice& dice) const;

  const std::filesystem::path root_;
  mutable std::mutex mutex_;  // guards all below
  size_t position_ = 0;
  std::vector<Event> events_;
  std::vector<Content> files_;
  std::map<std::pair<uint64_t, uint64_t>, size_t> by_inode_;  // (device, inode), of files that exist
  Names names_;                                               // before the recording
};

}  // namespace sluice::io
