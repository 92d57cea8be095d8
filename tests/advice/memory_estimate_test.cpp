// Estimates beside what DeepSpeed 0.19.8 prints.
#include <gtest/gtest.h>

#include <chrono>

#include <lockstep/advice/memory_estimate.h>

#include "launch/command.h"
#include "support/paths.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kDeadline{20};

std::string table(const MemoryQuestion& question) {
  return memory_table(question, estimate_memory(question));
}

std::string both_tables(const MemoryQuestion& question) {
  return table(question) + rank_memory_table(question, estimate_rank_memory(question));
}

// estimate_zero2_model_states_mem_needs_all_cold(2851e6, 8, 1), with "cpu " where Python 3.11 prints the
// enum's name.
TEST(MemoryEstimate, Stage2IsDeepSpeeds) {
  EXPECT_EQ(table({.params = 2851000000, .gpus_per_node = 8}),
            "Estimated memory needed for params, optim states and gradients for a:\n"
            "HW: Setup with 1 node, 8 GPUs per node.\n"
            "SW: Model with 2851M total params.\n"
            "  per CPU  |  per GPU |   Options\n"
            "  127.45GB |   5.31GB | offload_optimizer=cpu \n"
            "  127.45GB |  11.28GB | offload_optimizer=none\n");
}

// estimate_zero3_model_states_mem_needs_all_cold(2851e6, 32e6, 8, 1)
TEST(MemoryEstimate, Stage3IsDeepSpeeds) {
  EXPECT_EQ(table({.params = 2851000000, .largest_layer = 32000000, .gpus_per_node = 8, .stage = 3}),
            "Estimated memory needed for params, optim states and gradients for a:\n"
            "HW: Setup with 1 node, 8 GPUs per node.\n"
            "SW: Model with 2851M total params, 32M largest layer params.\n"
            "  per CPU  |  per GPU |   Options\n"
            "   71.69GB |   0.12GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1\n"
            "  127.45GB |   0.12GB | offload_param=cpu , offload_optimizer=cpu , zero_init=0\n"
            "   63.72GB |   0.78GB | offload_param=none, offload_optimizer=cpu , zero_init=1\n"
            "  127.45GB |   0.78GB | offload_param=none, offload_optimizer=cpu , zero_init=0\n"
            "    1.43GB |   6.09GB | offload_param=none, offload_optimizer=none, zero_init=1\n"
            "  127.45GB |   6.09GB | offload_param=none, offload_optimizer=none, zero_init=0\n");
}

// estimate_zero{2,3}_model_states_mem_needs(1_234_567_890[, 45_678_901], 4, 3, ...): (cpu, gpu)
TEST(MemoryEstimate, CountsNodesAsDeepSpeedDoes) {
  using Bytes = std::vector<std::pair<std::int64_t, std::int64_t>>;
  const auto bytes = [](const MemoryQuestion& question) {
    Bytes all;
    for (const auto& row : estimate_memory(question)) all.emplace_back(row.cpu_bytes, row.gpu_bytes);
    return all;
  };
  MemoryQuestion question{.params = 1234567890, .largest_layer = 45678901, .gpus_per_node = 4, .nodes = 3};
  EXPECT_EQ(bytes(question), (Bytes{{88888888080, 2469135780}, {29629629360, 4320987615}}));
  question.stage = 3;
  EXPECT_EQ(bytes(question), (Bytes{{11111111010, 182715604},
                                    {29629629360, 182715604},
                                    {9876543120, 388476919},
                                    {29629629360, 388476919},
                                    {1096293624, 2034567439},
                                    {29629629360, 2034567439}}));
}

// Table 1 of the ZeRO paper: 7.5 billion parameters on 64 devices, in GB of 10^9 bytes.
TEST(MemoryEstimate, StagesZeroAndOneAreThePapers) {
  const auto gigabytes = [](int stage) {
    const auto rows = estimate_memory({.params = 7500000000, .gpus_per_node = 64, .stage = stage});
    return static_cast<double>(rows.back().gpu_bytes) / 1e9;
  };
  EXPECT_NEAR(gigabytes(0), 120, 0.1);
  EXPECT_NEAR(gigabytes(1), 31.4, 0.1);
}

// tests/programs/deepspeed_test.py holds this against what ranks take.
TEST(RankMemory, CountsShardsOnce) {
  EXPECT_EQ(rank_memory_table({.params = 1 << 30, .gpus_per_node = 2, .stage = 2},
                              estimate_rank_memory({.params = 1 << 30, .gpus_per_node = 2, .stage = 2})),
            "lockstep on CPUs, each rank:\n"
            "  float32  |  16 bits  |   Options\n"
            "   10.00GB |   10.00GB | offload_optimizer=none\n"
            "    6.00GB |    6.00GB | offload_optimizer=nvme\n");
  const MemoryQuestion whole{
      .params = 1 << 30, .largest_layer = 1 << 28, .gpus_per_node = 4, .nodes = 2, .stage = 3};
  EXPECT_EQ(rank_memory_table(whole, estimate_rank_memory(whole)),
            "lockstep on CPUs, each rank:\n"
            "  float32  |  16 bits  |   Options\n"
            "    7.00GB |    4.75GB | offload_param=none, offload_optimizer=none\n"
            "    6.00GB |    3.75GB | offload_param=none, offload_optimizer=nvme\n"
            "    5.00GB |    2.50GB | offload_param=nvme, offload_optimizer=nvme\n");
  EXPECT_EQ(estimate_rank_memory({.params = 1000, .gpus_per_node = 8, .stage = 0}).front().fp32_bytes, 16000);
  EXPECT_EQ(estimate_rank_memory({.params = 1000, .gpus_per_node = 8, .stage = 0}).front().mixed_bytes,
            18000);
  for (const int stage : {1, 2, 3})  // nothing is gathered where one rank has all
    EXPECT_EQ(estimate_rank_memory({.params = 1000, .largest_layer = 500, .stage = stage}).front().fp32_bytes,
              16000);
}

TEST(MemoryEstimate, ReadsCounts) {
  EXPECT_EQ(parse_parameter_count("1500000000").value_or(0), 1500000000);
  EXPECT_EQ(parse_parameter_count("1.5B").value_or(0), 1500000000);
  EXPECT_EQ(parse_parameter_count("124m").value_or(0), 124000000);
  EXPECT_EQ(parse_parameter_count("0.35K").value_or(0), 350);
  EXPECT_EQ(parse_parameter_count("1T").value_or(0), 1000000000000);
  for (const char* text : {"", "B", "0", "-1M", "1.5", "1e30", "nan", "12Q", "1 M", "0x10"})
    EXPECT_FALSE(parse_parameter_count(text)) << text;
}

launch::CommandResult run_verb(std::vector<std::string> words) {
  words.insert(words.begin(), {test::in_build("bin/lockstep").string(), "estimate-memory"});
  return launch::run_command(words, kDeadline);
}

TEST(EstimateMemoryVerb, PrintsTheTable) {
  EXPECT_EQ(run_verb({"2851M", "--world", "8", "--stage", "2"}).output,
            both_tables({.params = 2851000000, .gpus_per_node = 8}));
  EXPECT_EQ(
      run_verb({"7B", "--world", "8", "--nodes", "2", "--stage", "3", "--largest-layer", "32M"}).output,
      both_tables(
          {.params = 7000000000, .largest_layer = 32000000, .gpus_per_node = 4, .nodes = 2, .stage = 3}));
  const auto offloaded =
      run_verb({"7B", "--stage", "3", "--largest-layer", "32M", "--offload", "all"}).output;
  EXPECT_NE(offloaded.find("offload_param=cpu "), std::string::npos);
  EXPECT_EQ(offloaded.find("none"), std::string::npos);
}

TEST(EstimateMemoryVerb, NamesTheWrongFlag) {
  const auto expect_refused = [](std::vector<std::string> words, const std::vector<std::string>& parts) {
    const auto result = run_verb(std::move(words));
    EXPECT_EQ(result.status, 2) << result.output;
    for (const auto& part : parts) EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  };
  expect_refused({"lots"}, {"MODEL", "124M", "\"lots\""});
  expect_refused({"7B", "--world", "8", "--nodes", "3"}, {"--world and --nodes", "8 ranks on 3 nodes"});
  expect_refused({"7B", "--stage", "4"}, {"--stage", "0 to 3"});
  expect_refused({"7B", "--stage", "3"}, {"--largest-layer", "got none"});
  expect_refused({"7B", "--offload", "all"}, {"--offload", "none or optimizer below stage 3"});
  expect_refused({"7B", "--offload", "disk"}, {"--offload", "disk"});
  expect_refused({}, {"MODEL"});
}

}  // namespace
}  // namespace lockstep
