#include "io/page_cache.h"

#include <sys/uio.h>

#include <cerrno>
#include <vector>

namespace sluice::io {

bool can_drop_from_cache(const File& file) {
  std::vector<std::byte> page(kAlignment);
  const iovec part{page.data(), page.size()};
  ssize_t got = 0;
  do got = preadv2(file.fd(), &part, 1, 0, kDropFromCache);
  while (got < 0 && errno == EINTR);
  return got >= 0;
}

}  // namespace sluice::io
