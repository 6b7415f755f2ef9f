// Changes of names on disk. Each is an Error(disk) naming the paths when it fails, and is told to the
// observer, if any. None is durable before sync_directory of the folder that holds the name.
#pragma once
#include <filesystem>

#include "io/file_observer.h"

namespace sluice::io {

// fsync of the folder. An error is final, never retried.
void sync_directory(const std::filesystem::path& directory, FileObserver* observer = nullptr);

void make_directory(const std::filesystem::path& directory,
                    FileObserver* observer = nullptr);  // its parent exists; it does not
// The same where others may make it at the same time, or have made it.
void ensure_directory(const std::filesystem::path& directory, FileObserver* observer = nullptr);
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to,
                 FileObserver* observer = nullptr);
// Each gets the name of the other, at once: no moment, and no crash, in which a name is missing. Both exist, in the same folder.
void exchange_paths(const std::filesystem::path& a, const std::filesystem::path& b, FileObserver* observer = nullptr);
// Whether exchange_paths can be done here (ext4, XFS, btrfs, tmpfs: yes; NFS: no). Tries it in `folder`, and leaves nothing there.
bool can_exchange_paths(const std::filesystem::path& folder);
void link_file(const std::filesystem::path& from, const std::filesystem::path& to,
               FileObserver* observer = nullptr);
void remove_tree(const std::filesystem::path& path,
                 FileObserver* observer = nullptr);  // nothing there: nothing happens. Others may remove it at the same time

}  // namespace sluice::io
