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
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to,
                 FileObserver* observer = nullptr);
void link_file(const std::filesystem::path& from, const std::filesystem::path& to,
               FileObserver* observer = nullptr);
void remove_tree(const std::filesystem::path& path,
                 FileObserver* observer = nullptr);  // nothing there: nothing happens

}  // namespace sluice::io
