// Error numbers of the system, as text.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace sluice::io {

std::string errno_text(int error);  // "No space left on device (ENOSPC)"

// What a user can do about an error while transferring `bytes` (0: it is not about bytes) at `path`; starts with ". " or ": ", or is empty.
std::string errno_advice(int error, const std::filesystem::path& path, uint64_t bytes);

// Bytes that an unprivileged process may still allocate on the file system of this file or folder, or of the folder that it was in; 0 when it
// cannot be asked.
uint64_t free_space(const std::filesystem::path& path);

}  // namespace sluice::io
