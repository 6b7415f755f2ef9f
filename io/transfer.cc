#include "io/transfer.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "io/page_cache.h"
#include "io/system_error.h"

namespace sluice::io {
namespace {

using base::Error;
using base::ErrorKind;

constexpr unsigned kMaxAttempts = 8;

const char* verb(IoOp op) {
  return op == IoOp::read ? "reading" : op == IoOp::write ? "writing" : "flushing";
}

std::exception_ptr failure(const Piece& piece, const std::string& cause) {
  const std::string what =
      piece.op == IoOp::sync
          ? fmt::format("flushing {} failed: {}", piece.file->path().string(), cause)
          : fmt::format("{} {} at offset {} of {} failed: {}", verb(piece.op),
                        base::format_bytes(piece.bytes), piece.offset, piece.file->path().string(), cause);
  return std::make_exception_ptr(Error(ErrorKind::disk, what));
}

// Whether the file has no more than what was read of the piece.
bool ends_at(const Piece& piece, int64_t bytes) {
  struct stat info {};
  return bytes >= 0 && fstat(piece.file->fd(), &info) == 0 && static_cast<uint64_t>(info.st_size) <= piece.offset + static_cast<uint64_t>(bytes);
}

uint64_t read_number(const std::string& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  return in >> value ? value : 0;
}

}  // namespace

TransferBook::TransferBook(const QueueOptions& options) : options_(options) {
  SLUICE_CHECK(options.block_size >= kAlignment && options.block_size % kAlignment == 0, "block_size");
  SLUICE_CHECK(options.depth >= 1 && options.depth <= 1024, "depth");
}

void TransferBook::add(const IoRequest& request, IoDone done) {
  SLUICE_CHECK(request.file != nullptr && request.file->valid(), "request on a closed file");
  auto transfer = std::make_shared<Transfer>();
  transfer->request = request;
  transfer->done = std::move(done);
  struct stat info {};
  if (fstat(request.file->fd(), &info) != 0)
    base::fail(ErrorKind::disk, "cannot stat {}: {}", request.file->path().string(), errno_text(errno));
  const Device& on = device(info.st_dev, *request.file);
  transfer->byte_cap = on.byte_cap;
  transfer->flags = on.drops_from_cache ? kDropFromCache : 0;
  if (request.op == IoOp::sync) {
    transfer->request.bytes = 0;
  } else {
    SLUICE_CHECK(request.offset % kAlignment == 0 && request.bytes % kAlignment == 0 &&
                     reinterpret_cast<uintptr_t>(request.data) % kAlignment == 0,
                 fmt::format("misaligned request: {} bytes at {} of {}", request.bytes, request.offset,
                             request.file->path().string()));
    if (const auto size = static_cast<uint64_t>(info.st_size);
        request.offset > size || request.bytes > size - request.offset)
      transfer->error = std::make_exception_ptr(Error(
          ErrorKind::disk,
          fmt::format("{} past the end of {}: need {} bytes at offset {}, the file has {}. It was cut "
                      "off, or is not what it seems",
                      verb(request.op), request.file->path().string(), request.bytes, request.offset, size)));
  }
  if (FileObserver* observer = request.file->observer(); observer != nullptr && !transfer->error) {
    if (request.op == IoOp::write)
      transfer->observation =
          observer->write_begins(*request.file, request.offset, {request.data, request.bytes});
    if (request.op == IoOp::sync) transfer->observation = observer->sync_begins(*request.file);
  }
  waiting_.push_back(std::move(transfer));
  ++outstanding_;
  ++stats_.requests;
}

std::optional<Piece> TransferBook::next() {
  while (!waiting_.empty() && waiting_.front()->all_issued) waiting_.pop_front();
  if (waiting_.empty() || pieces_in_flight_ >= options_.depth) return std::nullopt;
  const std::shared_ptr<Transfer>& transfer = waiting_.front();
  const IoRequest& request = transfer->request;
  Piece piece;
  piece.bytes = std::min(options_.block_size, request.bytes - transfer->issued);
  if (pieces_in_flight_ != 0 && bytes_in_flight_ + piece.bytes > transfer->byte_cap) return std::nullopt;
  piece.transfer = transfer;
  piece.op = request.op;
  piece.file = request.file;
  piece.data = request.data + transfer->issued;
  piece.offset = request.offset + transfer->issued;
  piece.charged = piece.bytes;
  piece.refused = transfer->error;
  ++pieces_in_flight_;
  bytes_in_flight_ += piece.charged;
  ++transfer->pieces;
  transfer->issued += piece.bytes;
  transfer->all_issued = transfer->issued == request.bytes || transfer->error != nullptr;
  return piece;
}

Outcome TransferBook::apply(Piece& piece, int64_t result) {
  if (options_.alter_result) result = options_.alter_result(piece.op, piece.offset, result);
  const auto failed = [&](const std::string& cause) {
    return Outcome{Verdict::failed, failure(piece, cause)};
  };
  if (result >= 0 && static_cast<uint64_t>(result) == piece.bytes) return {Verdict::complete, nullptr};
  const int error = result < 0 ? static_cast<int>(-result) : 0;
  if (piece.op == IoOp::sync)
    return failed(errno_text(error) + ". What was written since the last flush may be lost");
  if (result > static_cast<int64_t>(piece.bytes))
    return failed(fmt::format("the kernel claims {} bytes", result));
  if (result == 0) return failed(piece.op == IoOp::read ? "the file ends here: it was truncated" : "nothing could be written");
  if (piece.op == IoOp::read && ends_at(piece, result)) return failed("the file ends here: it was truncated");
  if (result > 0) {  // short: resume on an aligned boundary
    ++stats_.short_transfers;
    const size_t kept = static_cast<size_t>(result) / kAlignment * kAlignment;
    piece.data += kept;
    piece.offset += kept;
    piece.bytes -= kept;
    piece.attempts = kept != 0 ? 0 : piece.attempts + 1;
    if (piece.attempts > kMaxAttempts)
      return failed(fmt::format("only {} bytes transferred, {} times", result, piece.attempts));
    return {Verdict::again, nullptr};
  }
  if (error == EAGAIN || error == EINTR) {
    ++stats_.retries;
    if (++piece.attempts > 2 * kMaxAttempts) return failed(errno_text(error) + ", over and over");
    return {piece.attempts > kMaxAttempts ? Verdict::blocking : Verdict::again, nullptr};
  }
  if (error == EIO && piece.op == IoOp::read && !piece.retried_eio) {
    ++stats_.retries;
    piece.retried_eio = true;
    return {Verdict::again, nullptr};
  }
  return failed(errno_text(error) + errno_advice(error, piece.file->path(), piece.bytes));
}

std::shared_ptr<Transfer> TransferBook::finish(const Piece& piece, std::exception_ptr error) {
  Transfer& transfer = *piece.transfer;
  --pieces_in_flight_;
  bytes_in_flight_ -= piece.charged;
  --transfer.pieces;
  if (error && !transfer.error) transfer.error = std::move(error);
  if (transfer.error) transfer.all_issued = true;
  if (!transfer.all_issued || transfer.pieces != 0) return nullptr;
  const IoRequest& request = transfer.request;
  if (transfer.error) {
    ++stats_.failures;
  } else {
    if (request.op == IoOp::read) stats_.bytes_read += request.bytes;
    if (request.op == IoOp::write) stats_.bytes_written += request.bytes;
    if (FileObserver* observer = request.file->observer(); observer != nullptr) {
      if (request.op == IoOp::write) observer->write_ended(transfer.observation);
      if (request.op == IoOp::sync) observer->sync_ended(transfer.observation);
    }
  }
  return piece.transfer;
}

const TransferBook::Device& TransferBook::device(dev_t number, const File& file) {
  const auto [it, is_new] = devices_.try_emplace({number, file.direct()});
  if (is_new) it->second = {device_byte_cap(number), !file.direct() && can_drop_from_cache(file)};
  return it->second;
}

int64_t transfer_blocking(const Piece& piece) {
  const auto offset = static_cast<off_t>(piece.offset);
  const iovec part{piece.data, piece.bytes};
  const int flags = piece.transfer->flags;
  int64_t result = 0;
  switch (piece.op) {
    case IoOp::read:
      result = preadv2(piece.file->fd(), &part, 1, offset, flags);
      break;
    case IoOp::write:
      result = pwritev2(piece.file->fd(), &part, 1, offset, flags);
      break;
    case IoOp::sync:
      result = fdatasync(piece.file->fd());
      break;
  }
  return result < 0 ? -errno : result;
}

void backoff(const Piece& piece) {
  if (piece.attempts != 0)
    std::this_thread::sleep_for(std::chrono::microseconds(10u << std::min(piece.attempts, kMaxAttempts)));
}

uint64_t device_byte_cap(dev_t device) {
  const std::string block = fmt::format("/sys/dev/block/{}:{}", major(device), minor(device));
  for (const std::string& queue :
       {block + "/queue/", block + "/../queue/"}) {  // a partition's queue is its disk's
    const uint64_t cap =
        read_number(queue + "nr_requests") * read_number(queue + "max_sectors_kb") * 1024 / 2;
    if (cap != 0) return cap;
  }
  return std::numeric_limits<uint64_t>::max();
}

}  // namespace sluice::io
