// How fast several drives are while all of them work, as the drives of a store do.
#pragma once
#include <filesystem>
#include <vector>

#include "io/disk_rate.h"

namespace sluice::io {

// Of the drives of these folders, each with a file and a queue of its own, all at the same time: what shares a bus, or a drive, is measured
// as such. About six times `seconds`; the files are gone when it returns. Error(disk), also when a folder has too little free.
std::vector<DiskProfile> measure_drives(const std::vector<std::filesystem::path>& folders, double seconds);

// The first of the folders that has too little free for that; empty: none.
std::filesystem::path too_full_to_measure(const std::vector<std::filesystem::path>& folders);

}  // namespace sluice::io
