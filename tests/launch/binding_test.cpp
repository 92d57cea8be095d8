#include <gmock/gmock.h>

#include <fstream>
#include <numeric>

#include <lockstep/base/error.h>
#include <lockstep/launch/binding.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text << "\n";
}

// A host as the kernel shows it: two sockets with a node each, two complexes in a node, two cores in a
// complex, two processors in a core; the second ones have the numbers 8 to 15.
void write_host(const fs::path& system) {
  for (int processor = 0; processor < 16; ++processor) {
    const int core = processor % 8, complex = core / 2 * 2;
    const auto folder = system / "cpu" / ("cpu" + std::to_string(processor));
    const auto pair = [](int first) { return std::to_string(first) + "," + std::to_string(first + 8); };
    write(folder / "topology/core_cpus_list", pair(core));
    write(folder / "topology/physical_package_id", std::to_string(core / 4));
    write(folder / "cache/index0/level", "1");
    write(folder / "cache/index0/shared_cpu_list", pair(core));
    write(folder / "cache/index3/level", "3");
    write(folder / "cache/index3/shared_cpu_list", pair(complex) + "," + pair(complex + 1));
  }
  write(system / "node/node0/cpulist", "0-3,8-11");
  write(system / "node/node1/cpulist", "4-7,12-15");
  write(system / "node/online", "0-1");
}

std::vector<int> numbers(int first, int last) {
  std::vector<int> all(static_cast<std::size_t>(last - first + 1));
  std::iota(all.begin(), all.end(), first);
  return all;
}

class Binding : public ::testing::Test {
 protected:
  Binding() { write_host(folder_.path()); }

  // `0,8*1 1,9*1`: processors and threads of each rank.
  std::string plan(BindingKind kind, int ranks, const std::vector<int>& listed = {},
                   const std::vector<int>& usable = numbers(0, 15)) const {
    std::string text;
    for (const auto& binding : plan_bindings(cores_of(usable, folder_.path()), {kind, listed}, ranks)) {
      text += text.empty() ? "" : " ";
      for (const int processor : binding.processors)
        text += (text.empty() || text.back() == ' ' ? "" : ",") + std::to_string(processor);
      text += "*" + std::to_string(binding.threads);
    }
    return text;
  }

  test::TemporaryFolder folder_;
};

TEST_F(Binding, DividesCoresEquallyAndKeepsNeighboursTogether) {
  EXPECT_EQ(plan(BindingKind::kCores, 2), "0,8,1,9,2,10,3,11*4 4,12,5,13,6,14,7,15*4");
  EXPECT_EQ(plan(BindingKind::kCores, 3), "0,8,1,9*2 2,10,3,11*2 5,13,6,14*2");
  EXPECT_EQ(plan(BindingKind::kNone, 3), "");
}

TEST_F(Binding, RanksBeyondTheCoresShareThem) {
  EXPECT_EQ(plan(BindingKind::kCores, 4, {}, {0, 8, 4}), "0,8*1 0,8*1 4*1 4*1");
}

TEST_F(Binding, OnlyUsableProcessorsCount) {
  EXPECT_EQ(plan(BindingKind::kCores, 2, {}, {1, 6, 9}), "1,9*1 6*1");
}

TEST_F(Binding, ListedProcessorsAreDividedInTheirOrder) {
  EXPECT_EQ(plan(BindingKind::kCores, 2, {3, 1, 2, 0, 9}), "3,1*2 2,0*2");
  test::expect_error<ConfigError>(
      [&] {
        plan(BindingKind::kCores, 1, {0, 16});
      },
      {"--bind-core-list", "up to number 15", "16"});
}

TEST_F(Binding, ByNodesSocketsAndComplexes) {
  const std::string first = "0,8,1,9,2,10,3,11", second = "4,12,5,13,6,14,7,15";
  EXPECT_EQ(plan(BindingKind::kNode, 2), first + "*4 " + second + "*4");
  EXPECT_EQ(plan(BindingKind::kSocket, 4), first + "*2 " + first + "*2 " + second + "*2 " + second + "*2");
  EXPECT_EQ(plan(BindingKind::kExclusive, 4), "0,8,1,9*2 2,10,3,11*2 4,12,5,13*2 6,14,7,15*2");
  EXPECT_EQ(plan(BindingKind::kExclusive, 1), first + "*4");
  EXPECT_EQ(plan(BindingKind::kCoreComplex, 2), "0,8,1,9*2 4,12,5,13*2");
}

TEST_F(Binding, WhatTheKernelDoesNotTellIsOneNode) {
  test::TemporaryFolder empty;
  const auto cores = cores_of({0, 1}, empty.path());
  ASSERT_EQ(cores.size(), 2u);
  EXPECT_EQ(plan_bindings(cores, {BindingKind::kNode, {}}, 1).front().processors, (std::vector<int>{0, 1}));
}

TEST(BindingOfThisHost, HasTheProcessorsOfThisProcess) {
  std::vector<int> found;
  for (const auto& core : cores_of(usable_processor_numbers()))
    found.insert(found.end(), core.processors.begin(), core.processors.end());
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(usable_processor_numbers()));
}

TEST(ProcessorList, IsReadAsTheKernelWritesIt) {
  EXPECT_EQ(*parse_processors("0-2,8"), (std::vector<int>{0, 1, 2, 8}));
  for (const char* text : {"", "a", "1-", "-1", "3-1", "1,,2", "0-70000", "1,0-2"}) {
    SCOPED_TRACE(text);
    ASSERT_FALSE(parse_processors(text));
    EXPECT_THAT(parse_processors(text).error(), ::testing::HasSubstr("0-3,8"));
  }
}

}  // namespace
}  // namespace lockstep
