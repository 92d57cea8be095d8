// What the report of operations says, where times are known.
#include "train/callbacks/flops_report.h"

#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

using namespace std::chrono_literals;

// Two blocks, of which the second takes longer.
ProfiledBatch batch() {
  return {
      .step = 3,
      .world_size = 2,
      .batch_size = 8,
      .forward = 20ms,
      .backward = 40ms,
      .update = 4ms,
      .modules = {{"", "Model", 4'200'000'000, {.macs = 4e9, .other_flops = 2e6, .time = 16ms}},
                  {"blocks", "ModuleList", 4'200'000'000, {.macs = 4e9, .other_flops = 1e6, .time = 12ms}},
                  {"blocks.0", "Narrow", 200'000'000, {.macs = 1e9, .time = 2ms}},
                  {"blocks.1", "Wide", 4'000'000'000, {.macs = 3e9, .other_flops = 1e6, .time = 10ms}}}};
}

std::string page_of(deepspeed::FlopsProfiler options = {}) { return flops_page(batch(), options); }

std::string line_of(const std::string& page, const std::string& label) {
  const auto at = page.find("\n" + label);
  if (at == std::string::npos) return "no line " + label;
  const auto end = page.find('\n', at + 1);
  const auto value = page.find_first_not_of(' ', at + 1 + label.size());
  return page.substr(value, end - value);
}

TEST(FlopsPage, SumsUp) {
  const auto page = page_of({.recompute_fwd_factor = 0.5});
  EXPECT_NE(page.find("Profile Summary at step 3:\n"), std::string::npos);
  EXPECT_EQ(line_of(page, "params per GPU:"), "4.2 B");
  EXPECT_EQ(line_of(page, "fwd MACs per GPU:"), "4 GMACs");
  EXPECT_EQ(line_of(page, "fwd flops per GPU:"), "8 G");
  EXPECT_EQ(line_of(page, "fwd latency:"), "20 ms");
  EXPECT_EQ(line_of(page, "fwd FLOPS per GPU = fwd flops per GPU / fwd latency:"), "400.1 GFLOPS");
  EXPECT_EQ(line_of(page, "bwd FLOPS per GPU = 2.5 * fwd flops per GPU / bwd latency:"), "500.13 GFLOPS");
  EXPECT_EQ(line_of(page, "fwd+bwd FLOPS per GPU = 3.5 * fwd flops per GPU / (fwd+bwd latency):"),
            "466.78 GFLOPS");
  EXPECT_EQ(line_of(page, "iter latency:"), "64 ms");
  EXPECT_EQ(line_of(page, "samples/second:"), "250");
}

TEST(FlopsPage, ShowsTheLargestKindsOfEachDepth) {
  const auto page = page_of({.top_modules = 1});
  EXPECT_NE(page.find("depth 2:\n    params      - {'Wide': '4 B'}\n    MACs        - {'Wide': '3 GMACs'}\n"
                      "    fwd latency - {'Wide': '10 ms'}\n"),
            std::string::npos)
      << page;
  EXPECT_NE(page_of({.top_modules = 5}).find("{'Wide': '3 GMACs', 'Narrow': '1 GMACs'}"), std::string::npos);
  for (const int none : {0, -1})
    EXPECT_NE(page_of({.top_modules = none}).find("{}"), std::string::npos) << none;
  const auto shallow = page_of({.module_depth = 1});
  EXPECT_NE(shallow.find("depth 0:"), std::string::npos);
  EXPECT_EQ(shallow.find("depth 1:"), std::string::npos);
}

TEST(FlopsPage, ShowsTheTreeWithSharesOfTheModel) {
  const auto page = page_of();
  EXPECT_NE(
      page.find("Model(\n  4.2 B = 100% Params, 4 GMACs = 100% MACs, 16 ms = 100% latency, 500.13 GFLOPS\n"
                "  (blocks): ModuleList(\n    4.2 B = 100% Params, 4 GMACs = 100% MACs, 12 ms = 75% latency, "
                "666.75 GFLOPS\n    (0): Narrow(200 M = 4.76% Params, 1 GMACs = 25% MACs, 2 ms = 12.5% "
                "latency, 1 TFLOPS)\n    (1): Wide("),
      std::string::npos)
      << page;
  EXPECT_NE(page.find("\n  )\n)\n---"), std::string::npos) << page;
  EXPECT_EQ(page_of({.detailed = false}).find("Narrow("), std::string::npos);
}

// A model of which nothing is known to be counted divides by nothing.
TEST(FlopsPage, PutsUpWithNothing) {
  const auto page = flops_page({.modules = {{.path = "", .type = "Model"}}}, {});
  EXPECT_EQ(line_of(page, "fwd MACs per GPU:"), "0 MACs");
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::detail
