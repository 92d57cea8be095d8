#include "offload/swap_stream.h"

#include <array>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include <lockstep/base/error.h>

#include "faulty_file_calls.h"
#include "support/expect_error.h"
#include "swap_cases.h"

namespace lockstep::offload {
namespace {

using Parts = std::span<const std::span<std::byte>>;

// A parameter beside its moments, and one without; sizes that are multiples of nothing.
SwapLayout layout_of(std::size_t regions) {
  SwapLayout layout;
  for (std::uint64_t i = 0; i < regions; ++i) {
    const auto bytes = 4 * (1001 + 2377 * (i % 5));
    const std::array<std::uint64_t, 3> three{bytes, bytes, bytes};
    layout.add(i % 3 == 1 ? std::span(three).first(1) : std::span(three));
  }
  return layout;
}

unsigned seed_of(std::size_t region, std::size_t part) { return static_cast<unsigned>(region * 10 + part); }

void fill_all(SwapStream& stream) {
  stream.run(
      [](std::size_t region, Parts parts) {
        for (std::size_t part = 0; part < parts.size(); ++part) fill(parts[part], seed_of(region, part));
      },
      SwapPass::kFill);
}

void add_one(Parts parts) {
  for (const auto part : parts)
    for (std::byte& byte : part) byte = static_cast<std::byte>(static_cast<unsigned>(byte) + 1);
}

// How many bytes are not what was filled in, plus `added`.
std::size_t differing_after(std::size_t region, Parts parts, unsigned added) {
  std::size_t count = 0;
  for (std::size_t part = 0; part < parts.size(); ++part)
    for (std::size_t i = 0; i < parts[part].size(); ++i)
      count += static_cast<unsigned>(parts[part][i]) !=
               (static_cast<unsigned>(pattern(i, seed_of(region, part))) + added) % 256;
  return count;
}

void expect_added(SwapStream& stream, const std::function<unsigned(std::size_t)>& added_to) {
  std::size_t expected = 0;
  stream.run(
      [&](std::size_t region, Parts parts) {
        EXPECT_EQ(region, expected++);
        EXPECT_EQ(differing_after(region, parts, added_to(region)), 0u) << "region " << region;
      },
      SwapPass::kRead);
  EXPECT_EQ(expected, stream.layout().regions().size());
}

TEST(SwapLayout, KeepsPartsAndRegionsAligned) {
  const auto layout = layout_of(7);
  std::uint64_t end = 0;
  for (const SwapRegion& region : layout.regions()) {
    EXPECT_EQ(region.offset, end);
    EXPECT_EQ(region.offset % kAlignment, 0u);
    std::uint64_t part_end = 0;
    for (const SwapPart& part : region.parts) {
      EXPECT_EQ(part.offset % kAlignment, 0u);
      EXPECT_GE(part.offset, part_end);
      part_end = part.offset + part.bytes;
    }
    EXPECT_GE(region.bytes, part_end);
    EXPECT_LT(region.bytes, part_end + kAlignment);
    end = region.offset + region.bytes;
  }
  EXPECT_EQ(layout.bytes(), end);
  EXPECT_EQ(SwapLayout().largest(), 0u);
}

class SwapStreams : public SwapCases {
 protected:
  SwapFile file_for(const SwapLayout& layout) const {
    return SwapFile(folder, "a", layout.bytes(), options());
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, SwapStreams, ::testing::ValuesIn(swap_cases()),
                         ::testing::PrintToStringParamName());

TEST_P(SwapStreams, UpdatesEachRegionInOrder) {
  for (const std::size_t buffers : {1, 2, 3, 5, 40}) {
    for (const std::size_t regions : {0, 1, 3, 11}) {
      const auto layout = layout_of(regions);
      auto file = file_for(layout);
      SwapStream stream(file, layout, buffers);
      fill_all(stream);
      for (int pass = 0; pass < 3; ++pass) stream.run([](std::size_t, Parts parts) { add_one(parts); });
      expect_added(stream, [](std::size_t) { return 3u; });
    }
  }
}

TEST_P(SwapStreams, UsesNoMoreBuffersThanItHas) {
  const auto layout = layout_of(20);
  auto file = file_for(layout);
  SwapStream stream(file, layout, 3);
  std::set<const std::byte*> places;
  stream.run([&](std::size_t, Parts parts) { places.insert(parts[0].data()); });
  EXPECT_EQ(places.size(), 3u);
}

// Waits a while for what happens in the background.
template <class Condition>
bool comes(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

TEST_P(SwapStreams, ReadsAheadAndWritesBehindDuringAStep) {
  const auto layout = layout_of(8);
  auto file = file_for(layout);
  SwapStream stream(file, layout, 3);
  const auto regions = layout.regions();
  stream.run([&](std::size_t region, Parts) {
    const auto next = std::min(region + 1, regions.size() - 1);
    EXPECT_TRUE(comes([&] {
      return file.statistics().bytes_read == regions[next].offset + regions[next].bytes;
    })) << region;
    EXPECT_TRUE(comes([&] { return file.statistics().bytes_written == regions[region].offset; })) << region;
  });
  EXPECT_EQ(file.statistics().bytes_read, layout.bytes());
  EXPECT_EQ(file.statistics().bytes_written, layout.bytes());
}

TEST_P(SwapStreams, ReadsOrWritesOnly) {
  const auto layout = layout_of(5);
  auto file = file_for(layout);
  SwapStream stream(file, layout);
  fill_all(stream);
  EXPECT_EQ(file.statistics().bytes_read, 0u);
  stream.run([](std::size_t, Parts parts) { add_one(parts); }, SwapPass::kRead);
  EXPECT_EQ(file.statistics().bytes_written, layout.bytes());
  expect_added(stream, [](std::size_t) { return 0u; });
}

TEST_P(SwapStreams, AreConsistentAfterAnExceptionOfAStep) {
  for (const std::size_t buffers : {1, 2, 3, 5}) {
    const auto layout = layout_of(12);
    auto file = file_for(layout);
    SwapStream stream(file, layout, buffers);
    fill_all(stream);
    const auto step = [](std::size_t region, Parts parts) {
      add_one(parts);
      if (region == 6) throw std::runtime_error("stop");
    };
    EXPECT_THROW(stream.run(step), std::runtime_error);
    const auto after = file.statistics();
    expect_added(stream, [](std::size_t region) { return region < 6 ? 1u : 0u; });
    EXPECT_EQ(file.statistics().bytes_written, after.bytes_written) << "something was still under way";
    stream.run([](std::size_t, Parts parts) { add_one(parts); });
    expect_added(stream, [](std::size_t region) { return region < 6 ? 2u : 1u; });
  }
}

TEST_P(SwapStreams, RefuseAFileThatIsTooSmall) {
  const auto layout = layout_of(4);
  SwapFile file(folder, "a", 4096, options());
  test::expect_error<Error>([&] { SwapStream(file, layout); },
                            {file.path().string(), std::to_string(layout.bytes()), "4096 bytes"});
  test::expect_error<Error>([&] { SwapStream(file, {}, 0); }, {"buffers", "at least 1"});
}

class FaultyStreams : public SwapStreams {};
INSTANTIATE_TEST_SUITE_P(Ways, FaultyStreams,
                         ::testing::Values(SwapCase{EngineKind::kThreads, true, false},
                                           SwapCase{EngineKind::kThreads, false, false}),
                         ::testing::PrintToStringParamName());

TEST_P(FaultyStreams, EndWithTheErrorOfEachCallThatFails) {
  const auto layout = layout_of(9);
  auto file = file_for(layout);
  SwapStream stream(file, layout);
  const auto add = [](std::size_t, Parts parts) { add_one(parts); };
  for (const char* call : {"pread", "pwrite"}) {
    for (int after = 0; after < 20; after += 3) {
      const FaultyFileCalls faults(call, {.after = after, .error_number = EIO});
      test::expect_error<IoError>(
          [&] { stream.run(add); },
          {std::string(call) == "pread" ? "cannot read" : "cannot write", "Input/output error"});
    }
  }
  fill_all(stream);
  stream.run(add);
  expect_added(stream, [](std::size_t) { return 1u; });
}

}  // namespace
}  // namespace lockstep::offload
