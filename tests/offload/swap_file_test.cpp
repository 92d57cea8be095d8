#include "offload/swap_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>

#include "support/expect_error.h"
#include "swap_cases.h"

namespace lockstep::offload {
namespace {

namespace fs = std::filesystem;

class SwapFiles : public SwapCases {};
INSTANTIATE_TEST_SUITE_P(Ways, SwapFiles, ::testing::ValuesIn(swap_cases()),
                         ::testing::PrintToStringParamName());

// As open_direct() finds it out, by other means.
bool takes_direct_reads(const fs::path& folder) {
  const auto path = folder / "probe";
  const UniqueFd made(::open(path.c_str(), O_RDWR | O_CREAT, 0600));
  const AlignedBuffer buffer(kAlignment);
  const auto written = ::pwrite(made.get(), buffer.bytes().data(), kAlignment, 0);
  const UniqueFd direct(::open(path.c_str(), O_RDONLY | O_DIRECT));
  const bool takes = direct && ::read(direct.get(), buffer.bytes().data(), kAlignment) == written;
  fs::remove(path);
  return takes;
}

TEST_P(SwapFiles, GivesBackWhatWasWritten) {
  // Less than a block, a block, not a multiple of it, many.
  for (const std::uint64_t bytes : {4096u, 8192u, 12288u, 69632u, 1u << 20}) {
    SwapFile file(folder, "a", bytes, options());
    AlignedBuffer out(bytes), in(bytes);
    fill(out.bytes(), 1);
    file.write(0, out.bytes()).wait();
    file.read(0, in.bytes()).wait();
    EXPECT_EQ(differing(in.bytes(), 1), 0u) << bytes;
  }
}

TEST_P(SwapFiles, HasManyTransfersUnderWay) {
  constexpr int kCount = 40;
  constexpr std::uint64_t kEach = 20480;
  SwapFile file(folder, "a", kCount * kEach, options());
  std::vector<AlignedBuffer> buffers;
  std::vector<Transfer> transfers;
  for (unsigned i = 0; i < kCount; ++i) {
    fill(buffers.emplace_back(kEach).bytes(), i);
    transfers.push_back(file.write(i * kEach, buffers.back().bytes()));
  }
  for (Transfer& transfer : transfers) transfer.wait();
  for (AlignedBuffer& buffer : buffers) buffer = AlignedBuffer(kEach);
  for (unsigned i = 0; i < kCount; ++i) transfers[i] = file.read(i * kEach, buffers[i].bytes());
  for (unsigned i = kCount; i-- > 0;) transfers[i].wait();
  for (unsigned i = 0; i < kCount; ++i) EXPECT_EQ(differing(buffers[i].bytes(), i), 0u) << i;
}

TEST_P(SwapFiles, IsZerosAtFirstAndHasItsBytesOnDisk) {
  SwapFile file(folder, "a", 100'000, options());
  EXPECT_EQ(file.bytes(), 102'400u);
  EXPECT_EQ(fs::file_size(file.path()), 102'400u);
  struct stat status {};
  ASSERT_EQ(::stat(file.path().c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, 102'400);
  AlignedBuffer buffer(file.bytes());
  fill(buffer.bytes(), 1);
  file.read(0, buffer.bytes()).wait();
  for (const auto byte : buffer.bytes()) ASSERT_EQ(byte, std::byte{0});
}

TEST_P(SwapFiles, SaysHowItWorks) {
  SwapFile file(folder, "a", 8192, options());
  EXPECT_EQ(file.engine(), GetParam().engine == EngineKind::kThreads ? "threads" : "io_uring");
  const bool can = !GetParam().in_memory && takes_direct_reads(folder.path());
  EXPECT_EQ(file.is_direct(), GetParam().direct && can);
}

TEST_P(SwapFiles, CountsBytesAndWaits) {
  SwapFile file(folder, "a", 1 << 20, options());
  AlignedBuffer buffer(1 << 20);
  file.write(0, buffer.bytes()).wait();
  EXPECT_EQ(file.statistics().bytes_written, 1u << 20);
  EXPECT_GT(file.statistics().write_wait.count(), 0);
  EXPECT_EQ(file.statistics().read_wait.count(), 0);
  file.read(4096, buffer.bytes().first(12288)).wait();
  EXPECT_EQ(file.statistics().bytes_read, 12288u);
  EXPECT_GT(file.statistics().read_wait.count(), 0);
}

TEST_P(SwapFiles, FinishesWhatNobodyWaitsFor) {
  AlignedBuffer buffer(1 << 20);
  fill(buffer.bytes(), 5);
  SwapFile file(folder, "a", 1 << 20, options());
  { const Transfer forgotten = file.write(0, buffer.bytes()); }
  EXPECT_EQ(file.statistics().bytes_written, 1u << 20);
  Transfer late;
  {
    SwapFile other(folder, "b", 1 << 20, options());
    late = other.write(0, buffer.bytes());
  }
  EXPECT_TRUE(late.is_done());
  late.wait();
}

TEST_P(SwapFiles, TakesBlocksOneByOneAndWithoutOverlap) {
  auto one_by_one = options();
  one_by_one.single_submit = true;
  one_by_one.overlap_events = false;
  SwapFile file(folder, "a", 1 << 20, one_by_one);
  AlignedBuffer out(1 << 20), in(1 << 20);
  fill(out.bytes(), 3);
  file.write(0, out.bytes()).wait();
  file.read(0, in.bytes()).wait();
  EXPECT_EQ(differing(in.bytes(), 3), 0u);
}

TEST_P(SwapFiles, GoesWithItsObject) {
  fs::path path;
  {
    SwapFile file(folder, "a", 8192, options());
    path = file.path();
    EXPECT_TRUE(fs::exists(path));
    const SwapFile moved(std::move(file));
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::exists(folder.path()));
}

TEST_P(SwapFiles, RefusesWhatIsNotAlignedOrOutside) {
  SwapFile file(folder, "a", 16384, options());
  AlignedBuffer buffer(32768);
  const auto bytes = buffer.bytes();
  const auto refused = [&](std::uint64_t offset, std::span<std::byte> span, const std::string& part) {
    test::expect_error<Error>([&] { file.read(offset, span).wait(); }, {file.path().string(), "4096", part});
    test::expect_error<Error>([&] { file.write(offset, span).wait(); }, {part});
  };
  refused(1, bytes.first(4096), "offset 1,");
  refused(0, bytes.first(4095), "size 4095,");
  refused(0, bytes.subspan(8, 4096), "address modulo 4096 8");
  refused(0, bytes, "size 32768,");
  refused(~std::uint64_t{4095}, bytes.first(8192), "16384 bytes (16.0 KiB)");
  file.read(16384, {}).wait();
}

TEST(SwapOptions, AreChecked) {
  const auto refused = [](const SwapOptions& options, const std::string& key, const std::string& value) {
    test::expect_error<ConfigError>([&] { validate(options); }, {key, value});
  };
  refused({.block_size = 0}, "aio.block_size", "got 0");
  refused({.block_size = 1000}, "aio.block_size", "multiple of 4096");
  refused({.block_size = std::int64_t{1} << 31}, "aio.block_size", "2147483648");
  refused({.queue_depth = 0}, "aio.queue_depth", "1 to 4096");
  refused({.queue_depth = 5000}, "aio.queue_depth", "5000");
  validate({});
}

}  // namespace
}  // namespace lockstep::offload
