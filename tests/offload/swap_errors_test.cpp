// What disks and limits do to swap files.
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include <lockstep/base/error.h>

#include "faulty_file_calls.h"
#include "offload/swap_folder.h"
#include "support/expect_error.h"
#include "support/file_size_limit.h"
#include "swap_cases.h"

namespace lockstep::offload {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::FileSizeLimit;

class SwapErrors : public SwapCases {};
INSTANTIATE_TEST_SUITE_P(Ways, SwapErrors, ::testing::ValuesIn(swap_cases()),
                         ::testing::PrintToStringParamName());

TEST_P(SwapErrors, NeededAndFreeBytesAreNamedWhereThereIsNoRoom) {
  const auto free = free_bytes(folder.path()).value();
  const auto wanted = aligned(free + (1ull << 30));
  expect_error<IoError>([&] { SwapFile(folder, "a", wanted, options()); },
                        {"no room", (folder.path() / "a").string(), std::to_string(wanted) + " bytes",
                         ") free", "rank 0", "another disk"});
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST_P(SwapErrors, AreTheSameWhenAnotherProcessTakesTheRoomFirst) {
  const FaultyFileCalls full("posix_fallocate", {.error_number = ENOSPC});
  expect_error<IoError>([&] { SwapFile(folder, "a", 8192, options()); }, {"no room", "8192 bytes", ") free"});
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST_P(SwapErrors, NameTheLimitOfFiles) {
  const FileSizeLimit limit(64 << 10);
  expect_error<IoError>([&] { SwapFile(folder, "a", 1 << 20, options()); },
                        {"1048576", "limit of 65536", "ulimit -f"});
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// The limit lies in the middle of a block: half of it is written, the rest is not.
TEST_P(SwapErrors, ComeFromAWriteThatTheSystemCutsShort) {
  SwapFile file(folder, "a", 65536, options());
  AlignedBuffer out(65536), in(65536);
  fill(out.bytes(), 1);
  {
    const FileSizeLimit limit(8192 * 2 + 4096);
    auto write = file.write(0, out.bytes().first(8192 * 3));
    expect_error<IoError>([&] { write.wait(); }, {"cannot write", file.path().string(),
                                                  "4096 bytes at offset 20480", "File too large"});
    write.wait();  // says it once
  }
  file.read(0, in.bytes()).wait();
  EXPECT_EQ(differing(in.bytes().first(20480), 1), 0u);
  file.write(0, out.bytes()).wait();  // and is usable afterwards
  file.read(0, in.bytes()).wait();
  EXPECT_EQ(differing(in.bytes(), 1), 0u);
}

TEST_P(SwapErrors, ComeFromAFileThatSomebodyCutShort) {
  SwapFile file(folder, "a", 65536, options());
  fs::resize_file(file.path(), 20480 + 100);
  AlignedBuffer in(65536);
  auto read = file.read(0, in.bytes());
  expect_error<IoError>([&] { read.wait(); }, {"cannot read", file.path().string(), "offset ", "cut short"});
  file.read(0, in.bytes().first(16384)).wait();
}

class FaultyDisk : public SwapCases {};
INSTANTIATE_TEST_SUITE_P(Ways, FaultyDisk,
                         ::testing::Values(SwapCase{EngineKind::kThreads, true, false},
                                           SwapCase{EngineKind::kThreads, false, false}),
                         ::testing::PrintToStringParamName());

TEST_P(FaultyDisk, ShortReadsAndWritesAreContinued) {
  SwapFile file(folder, "a", 65536, options());
  AlignedBuffer out(65536), in(65536);
  fill(out.bytes(), 1);
  const ssize_t most = file.is_direct() ? 5000 : 1000;  // direct ones must go on at a page
  {
    const FaultyFileCalls short_writes("pwrite", {.most_bytes = most});
    file.write(0, out.bytes()).wait();
    EXPECT_GE(short_writes.calls(), file.is_direct() ? 16 : 66);
  }
  const FaultyFileCalls short_reads("pread", {.most_bytes = most});
  file.read(0, in.bytes()).wait();
  EXPECT_GE(short_reads.calls(), file.is_direct() ? 16 : 66);
  EXPECT_EQ(differing(in.bytes(), 1), 0u);
  EXPECT_EQ(file.statistics().bytes_read, 65536u);
}

TEST_P(FaultyDisk, FailuresNameTheSystemsReason) {
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    SwapFile file(folder, "a", 65536, options());
    AlignedBuffer bytes(65536);
    const FaultyFileCalls faults("pwrite", {.after = 3, .error_number = error});
    auto write = file.write(0, bytes.bytes());
    expect_error<IoError>([&] { write.wait(); },
                          {"cannot write", "8192 bytes at offset", std::strerror(error)});
  }
  SwapFile file(folder, "a", 65536, options());
  AlignedBuffer bytes(65536);
  const FaultyFileCalls faults("pread", {.error_number = EIO});
  auto read = file.read(8192, bytes.bytes().first(8192));
  expect_error<IoError>([&] { read.wait(); },
                        {"cannot read", "8192 bytes at offset 8192", "Input/output error"});
}

TEST_P(FaultyDisk, InterruptedCallsAreRepeated) {
  SwapFile file(folder, "a", 8192, options());
  AlignedBuffer bytes(8192);
  auto begin = [&] {
    const FaultyFileCalls interrupted("pwrite", {.error_number = EINTR});
    auto write = file.write(0, bytes.bytes());
    while (interrupted.calls() < 3) std::this_thread::yield();
    return write;
  };
  begin().wait();
  EXPECT_EQ(file.statistics().bytes_written, 8192u);
}

TEST_P(FaultyDisk, WhatRefusesDirectTransfersIsReadThroughThePageCache) {
  const FaultyFileCalls refused("pread", {.error_number = EINVAL});
  const SwapFile file(folder, "a", 8192, options());
  EXPECT_FALSE(file.is_direct());
}

}  // namespace
}  // namespace lockstep::offload
