// Transfers through the page cache, where a file system refuses O_DIRECT.
#pragma once

#include "io/file.h"

namespace sluice::io {

// RWF_DONTCACHE, for preadv2, pwritev2 and io_uring; newer than the headers of Debian 12.
inline constexpr int kDropFromCache = 0x80;

// Whether the file system drops what such a transfer put into the page cache as soon as it is done: Linux 6.14 and later, on ext4, XFS
// and others, not on tmpfs. By really reading a page, so the file must be readable.
bool can_drop_from_cache(const File& file);

}  // namespace sluice::io
