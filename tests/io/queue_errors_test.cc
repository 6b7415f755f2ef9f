// Every error and every short result that a system call can end with, on every disk queue. What the ring itself and the system refuse:
// uring_limits_test.cc.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "tests/io/queue_fixture.h"

namespace sluice::io {
namespace {

using base::ErrorKind;
using ::testing::AllOf;
using ::testing::HasSubstr;

class QueueErrors : public QueueTest {};

TEST_P(QueueErrors, APastTheEndRequestFailsAndNamesTheFile) {
  const auto queue = make();
  const File file = create("data", 64_KiB);
  for (const IoOp op : {IoOp::read, IoOp::write})
    for (const uint64_t offset : {uint64_t{0}, uint64_t{32_KiB}, uint64_t{1_MiB}}) {
      const std::string text = error_of(ErrorKind::disk, [&] {
        submit(*queue, {op, &file, memory_.data(), 128_KiB, offset}).get();
      });
      EXPECT_THAT(text, HasSubstr(file.path().string()));
    }
  EXPECT_EQ(file.size(), 64_KiB);
  EXPECT_EQ(queue->stats().failures, 6u);
}

TEST_P(QueueErrors, WritingAReadOnlyFileFails) {
  const auto queue = make();
  create("data", 1_MiB);
  const File file = File::open(scratch_ / "data", OpenMode::read, {.direct = GetParam().direct});
  std::atomic<int> calls = 0;
  queue->submit({IoOp::write, &file, memory_.data(), 1_MiB, 0}, [&](std::exception_ptr error) {
    EXPECT_TRUE(error);
    ++calls;
  });
  queue->drain();
  EXPECT_EQ(calls, 1);  // one call, though several pieces failed
  EXPECT_THAT(error_of(ErrorKind::disk,
                       [&] {
                         submit(*queue, {IoOp::write, &file, memory_.data(), 4_KiB, 0}).get();
                       }),
              HasSubstr("EBADF"));
}

// Every system call in turn fails once with each error that may pass by itself, or comes back short.
TEST_P(QueueErrors, PassingErrorsAndShortTransfersAtEveryCallAreMadeGood) {
  constexpr int kCalls = 8;  // 4 pieces written, 4 read
  const File file = create("data", 256_KiB);
  for (const int64_t fault : {int64_t{-EAGAIN}, int64_t{-EINTR}, int64_t{4096}, int64_t{5000}, int64_t{100}})
    for (int nth = 0; nth < kCalls; ++nth) {
      int call = 0;
      const auto queue =
          make({.block_size = 64_KiB, .depth = 2, .alter_result = [&](IoOp, uint64_t, int64_t result) {
                  return call++ == nth ? fault : result;
                }});
      const std::span<std::byte> out = memory_.span(0, 256_KiB), in = memory_.span(6_MiB, 256_KiB);
      fill_pattern(out, static_cast<uint64_t>(nth), 0);
      std::fill(in.begin(), in.end(), std::byte{0});
      submit(*queue, {IoOp::write, &file, out.data(), out.size(), 0}).get();
      submit(*queue, {IoOp::read, &file, in.data(), in.size(), 0}).get();
      EXPECT_TRUE(has_pattern(in, static_cast<uint64_t>(nth), 0));
      EXPECT_EQ(call, kCalls + 1) << "the failed call is repeated";
      EXPECT_EQ(queue->stats().retries + queue->stats().short_transfers, 1u);
    }
}

TEST_P(QueueErrors, LastingErrorsAtEveryCallFailTheRequestOnceAndSpareTheOthers) {
  const File file = create("data", 256_KiB);
  for (const IoOp op : {IoOp::read, IoOp::write})
    for (const int error : {ENOSPC, EINVAL, EDQUOT})
      for (int nth = 0; nth < 4; ++nth) {
        int call = 0;
        const auto queue =
            make({.block_size = 64_KiB, .depth = 3, .alter_result = [&](IoOp, uint64_t, int64_t result) {
                    return call++ == nth ? -error : result;
                  }});
        std::atomic<int> failed = 0, succeeded = 0;
        for (int i = 0; i < 2; ++i)
          queue->submit({op, &file, memory_.data() + i * 512_KiB, 256_KiB, 0},
                        [&](std::exception_ptr e) { ++(e ? failed : succeeded); });
        queue->drain();
        EXPECT_EQ(failed, 1);
        EXPECT_EQ(succeeded, 1);
      }
}

TEST_P(QueueErrors, ABusyKernelIsAskedAgainThenBlockedOnThenGivenUp) {
  const File file = create("data", 64_KiB);
  for (const IoOp op : {IoOp::write, IoOp::read})
    for (const auto& [error, name] : {std::pair{EAGAIN, "EAGAIN"}, {EINTR, "EINTR"}}) {
      int busy = 12;
      const auto queue = make({.block_size = 64_KiB, .depth = 2, .alter_result = [&, e = error](IoOp, uint64_t, int64_t result) {
                                 return busy-- > 0 ? int64_t{-e} : result;
                               }});
      const std::span<std::byte> data = memory_.span(0, 64_KiB);
      if (op == IoOp::write)
        fill_pattern(data, 3, 0);
      else
        std::ranges::fill(data, std::byte{0});
      submit(*queue, {op, &file, data.data(), 64_KiB, 0}).get();
      EXPECT_EQ(queue->stats().retries, 12u);
      EXPECT_TRUE(has_pattern(data, 3, 0));
      busy = 1000;
      EXPECT_THAT(error_of(ErrorKind::disk, [&] { submit(*queue, {op, &file, data.data(), 64_KiB, 0}).get(); }),
                  AllOf(HasSubstr(name), HasSubstr("over and over"), HasSubstr("offset 0 of " + file.path().string())));
    }
}

TEST_P(QueueErrors, ATransferThatStaysShortIsGivenUp) {
  const File file = create("data", 256_KiB);
  for (const IoOp op : {IoOp::read, IoOp::write}) {
    int calls = 0;
    const auto queue = make({.block_size = 64_KiB, .depth = 1, .alter_result = [&](IoOp, uint64_t offset, int64_t result) {
                               if (offset < 64_KiB) return result;
                               ++calls;
                               return int64_t{100};
                             }});
    EXPECT_THAT(error_of(ErrorKind::disk, [&] { submit(*queue, {op, &file, memory_.data(), 256_KiB, 0}).get(); }),
                AllOf(HasSubstr("only 100 bytes transferred"), HasSubstr("offset 65536 of " + file.path().string())));
    EXPECT_EQ(calls, 9);
  }
}

// The file loses its end between two pieces of a read: at a page, within one, and all that is left to read.
TEST_P(QueueErrors, AFileThatIsCutOffWhileItIsReadIsAnError) {
  for (const uint64_t left : {96_KiB, 96_KiB + 904, 64_KiB}) {
    const std::string name = "data" + std::to_string(left);
    const File file = create(name, 256_KiB);
    int calls = 0;
    const auto queue = make({.block_size = 64_KiB, .depth = 1, .alter_result = [&](IoOp, uint64_t, int64_t result) {
                               if (++calls == 1) std::filesystem::resize_file(scratch_ / name, left);
                               return result;
                             }});
    EXPECT_THAT(error_of(ErrorKind::disk, [&] { submit(*queue, {IoOp::read, &file, memory_.data(), 256_KiB, 0}).get(); }),
                AllOf(HasSubstr("truncated"), HasSubstr(file.path().string())));
    EXPECT_LE(calls, 3);
  }
}

TEST_P(QueueErrors, AFullDiskSaysWhatItNeedsAndHas) {
  const File file = create("data", 64_KiB);
  for (const int error : {ENOSPC, EDQUOT}) {
    const auto queue = make({.block_size = 64_KiB, .depth = 2, .alter_result = [&](IoOp, uint64_t, int64_t) { return int64_t{-error}; }});
    const std::string text = error_of(ErrorKind::disk, [&] { submit(*queue, {IoOp::write, &file, memory_.data(), 64_KiB, 0}).get(); });
    EXPECT_THAT(text, AllOf(HasSubstr("need 64.0 KiB, have "), HasSubstr("offset 0 of " + file.path().string())));
    EXPECT_EQ(text.find("have 0 B"), std::string::npos) << text;
    EXPECT_EQ(text.find("quota") != std::string::npos, error == EDQUOT) << text;
  }
}

TEST_P(QueueErrors, AnIoErrorIsRetriedOnceForReadsNeverForWritesAndSyncs) {
  const File file = create("data", 64_KiB);
  int errors = 1;
  const auto queue =
      make({.block_size = 64_KiB, .depth = 2, .alter_result = [&](IoOp, uint64_t, int64_t result) {
              return errors-- > 0 ? int64_t{-EIO} : result;
            }});
  submit(*queue, {IoOp::read, &file, memory_.data(), 64_KiB, 0}).get();
  errors = 2;
  EXPECT_THAT(error_of(ErrorKind::disk,
                       [&] {
                         submit(*queue, {IoOp::read, &file, memory_.data(), 64_KiB, 0}).get();
                       }),
              AllOf(HasSubstr("EIO"), HasSubstr("offset 0 of " + file.path().string())));
  for (const IoOp op : {IoOp::write, IoOp::sync}) {
    errors = 1;
    EXPECT_THROW(submit(*queue, {op, &file, memory_.data(), 64_KiB, 0}).get(), base::Error);
    submit(*queue, {op, &file, memory_.data(), 64_KiB, 0}).get();
  }
}

TEST_P(QueueErrors, NothingTransferredInsideTheFileIsAnError) {
  const File file = create("data", 64_KiB);
  bool nothing = true;
  const auto queue =
      make({.block_size = 64_KiB, .depth = 2, .alter_result = [&](IoOp, uint64_t, int64_t result) {
              return nothing ? 0 : result;
            }});
  EXPECT_THAT(error_of(ErrorKind::disk,
                       [&] {
                         submit(*queue, {IoOp::read, &file, memory_.data(), 64_KiB, 0}).get();
                       }),
              HasSubstr("truncated"));
  EXPECT_THROW(submit(*queue, {IoOp::write, &file, memory_.data(), 64_KiB, 0}).get(), base::Error);
  nothing = false;
  submit(*queue, {IoOp::write, &file, memory_.data(), 64_KiB, 0}).get();
}

INSTANTIATE_TEST_SUITE_P(All, QueueErrors, all_backends(), backend_name);

}  // namespace
}  // namespace sluice::io
