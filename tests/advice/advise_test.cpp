// What strategies need by the advice, and which is recommended. tests/programs/advise_test.py holds it
// against measured peaks.
#include <lockstep/advice/advise.h>

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/advice/memory_estimate.h>
#include <lockstep/base/error.h>
#include <lockstep/formats/safetensors.h>

#include "launch/command.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

constexpr std::int64_t kParameters = 12'000'000;
constexpr std::int64_t kUnit = 1'000'000;  // of 10 units; the rest, 2 million, is the root
constexpr std::int64_t kMiB = 1 << 20;

AdviceQuestion question_for(int ranks, int nodes = 1) {
  return {.model = {.parameters = kParameters,
                    .largest_layer = kUnit / 2,
                    .units = 10,
                    .largest_unit = kUnit,
                    .in_units = 10 * kUnit,
                    .features = 1600},
          .world_size = ranks,
          .nodes = nodes};
}

const StrategyAdvice& row_of(const Advice& advice, const std::string& name) {
  for (const auto& row : advice.strategies)
    if (row.name == name) return row;
  throw std::invalid_argument(name);
}

// params, grads, optimizer, buffers
std::vector<std::int64_t> states(const StrategyAdvice& row) {
  return {row.parameters_bytes, row.gradients_bytes, row.optimizer_bytes, row.buffers_bytes};
}

using RowBytes = std::vector<std::int64_t>;
constexpr std::int64_t kP = 4 * kParameters;  // bytes of the model in float32

TEST(Advise, CountsWhatEachRankHolds) {
  const auto advice = advise(question_for(4));
  EXPECT_EQ(states(row_of(advice, "single_device")), (RowBytes{kP, kP, 2 * kP, 0}));
  EXPECT_EQ(states(row_of(advice, "ddp")), (RowBytes{kP, kP, 2 * kP, 0}));
  EXPECT_EQ(states(row_of(advice, "fsdp NO_SHARD")), (RowBytes{kP, kP, 2 * kP, 0}));
  const auto sent_units = 3 * 4 * kUnit;  // gradients that are on their way
  EXPECT_EQ(states(row_of(advice, "deepspeed_stage_2")),
            (RowBytes{kP / 4, kP / 4, kP / 2, kP * 3 / 4 + sent_units}));
  EXPECT_EQ(states(row_of(advice, "fsdp SHARD_GRAD_OP")),
            (RowBytes{kP / 4, kP / 4, kP / 2, kP + sent_units}));
  const RowBytes full{kP / 4, kP / 4, kP / 2, 4 * (2 * kUnit + 2 * kUnit) + sent_units};
  EXPECT_EQ(states(row_of(advice, "fsdp FULL_SHARD")), full);
  EXPECT_EQ(states(row_of(advice, "fsdp HYBRID_SHARD")), full);  // of one node
  const auto& offloaded = row_of(advice, "fsdp_cpu_offload");
  EXPECT_EQ(offloaded.offloaded_bytes, kP);
  EXPECT_EQ(offloaded.parameters_bytes + offloaded.gradients_bytes + offloaded.optimizer_bytes, 0);
}

TEST(Advise, HybridSharesWithinNodes) {
  const auto advice = advise(question_for(8, 2));
  const auto& hybrid = row_of(advice, "fsdp HYBRID_SHARD");
  EXPECT_EQ(hybrid.optimizer_bytes, 2 * kP / 4);
  EXPECT_EQ(row_of(advice, "fsdp FULL_SHARD").optimizer_bytes, 2 * kP / 8);
  EXPECT_EQ(hybrid.sent_bytes, 3 * kP * 3 / 4 + 2 * (kP / 4) / 2);  // and shards across the two nodes
}

TEST(Advise, CountsTrafficAsTheStrategiesSend) {
  const auto advice = advise(question_for(4));
  for (const char* name : {"ddp", "fsdp NO_SHARD", "fsdp SHARD_GRAD_OP", "deepspeed_stage_1",
                           "deepspeed_stage_2", "deepspeed_stage_3"})
    EXPECT_EQ(row_of(advice, name).sent_bytes, 2 * kP * 3 / 4) << name;
  EXPECT_EQ(row_of(advice, "fsdp FULL_SHARD").sent_bytes, 3 * kP * 3 / 4);
  EXPECT_EQ(row_of(advice, "single_device").sent_bytes, 0);
}

// DeepSpeed lets a thousand million elements live: what is beyond is gathered anew in backward.
TEST(Advise, Stage3HoldsWhatMayLive) {
  const auto advice = advise({.model = transformer_of(4'000'000'000, 40), .world_size = 4});
  const auto& stage_3 = row_of(advice, "deepspeed_stage_3");
  EXPECT_EQ(stage_3.buffers_bytes, 4 * (1'000'000'000 + 3 * 100'000'000LL));
  EXPECT_EQ(stage_3.sent_bytes, static_cast<std::int64_t>(2.75 * 4 * 4'000'000'000 * 3 / 4));
}

TEST(Advise, KnowsPrecisionsAndOptimizers) {
  auto question = question_for(4);
  question.precision = "bf16-mixed";
  EXPECT_EQ(states(row_of(advise(question), "ddp")), (RowBytes{kP, kP, 2 * kP, kP / 2}));  // casts
  const auto full = row_of(advise(question), "fsdp FULL_SHARD");
  EXPECT_EQ(full.parameters_bytes, kP / 4 + kP / 8);  // and the copy of the shard in 16 bits
  EXPECT_EQ(full.sent_bytes, 3 * kP / 2 * 3 / 4);
  question.precision = "bf16-true";
  EXPECT_EQ(states(row_of(advise(question), "ddp")), (RowBytes{kP / 2, kP / 2, 2 * kP, 0}));
  question.precision = "64-true";
  EXPECT_EQ(states(row_of(advise(question), "ddp")), (RowBytes{2 * kP, 2 * kP, 4 * kP, 0}));
  question.precision = "32-true";
  for (const auto& [name, numbers] :
       {std::pair{"SGD", 0}, {"sgd-momentum", 1}, {"Lion", 1}, {"Adagrad", 1}, {"Lamb", 2}, {"Muon", 1}}) {
    question.optimizer = name;
    EXPECT_EQ(row_of(advise(question), "ddp").optimizer_bytes, numbers * kP) << name;
  }
}

TEST(Advise, ActivationsAreEstimatedOrGiven) {
  auto question = question_for(2);
  question.tokens = 1000;
  EXPECT_EQ(row_of(advise(question), "ddp").activations_bytes, 4 * 1600 * 1000 * 17 / 16);
  question.activation_bytes = 160 * kMiB;
  EXPECT_EQ(row_of(advise(question), "ddp").activations_bytes, 160 * kMiB);
  const auto again = row_of(advise(question), "fsdp FULL_SHARD, activations computed again");
  EXPECT_EQ(again.activations_bytes, 10 * kMiB + 16 * kMiB);  // inputs of blocks, and one block
  question.model = {.parameters = kParameters};               // of which no blocks are known
  for (const auto& row : advise(question).strategies)
    EXPECT_EQ(row.name.find("computed again"), std::string::npos);
}

std::string recommended(AdviceQuestion question, std::int64_t memory_bytes) {
  question.memory_bytes = memory_bytes;
  const auto advice = advise(question);
  return advice.recommended() == nullptr ? "" : advice.recommended()->name;
}

// What fits a little is what fits with a tenth to spare.
std::string recommended_for_peak_of(const AdviceQuestion& question, const std::string& name) {
  const auto peak = static_cast<double>(row_of(advise(question), name).peak_bytes);
  return recommended(question, static_cast<std::int64_t>(peak / 0.9) + 2);
}

TEST(Advise, RecommendsTheCheapestThatFits) {
  auto question = question_for(4);
  question.activation_bytes = 100 * kMiB;
  for (const char* name :
       {"ddp", "deepspeed_stage_2", "fsdp FULL_SHARD", "fsdp FULL_SHARD, activations computed again",
        "fsdp_cpu_offload, activations computed again"})
    EXPECT_EQ(recommended_for_peak_of(question, name), name);
  EXPECT_EQ(recommended(question, kMiB), "");
  auto nodes = question;
  nodes.nodes = 2;
  EXPECT_EQ(recommended_for_peak_of(nodes, "fsdp _HYBRID_SHARD_ZERO2"), "fsdp _HYBRID_SHARD_ZERO2");
  EXPECT_EQ(recommended_for_peak_of(question_for(1), "single_device"), "single_device");
  EXPECT_EQ(recommended_for_peak_of(question_for(1), "fsdp_cpu_offload"), "fsdp_cpu_offload");
}

TEST(Advise, SaysNothingOfAnUnknownMemory) {
  const auto advice = advise(question_for(2));
  EXPECT_EQ(advice.recommended(), nullptr);
  EXPECT_FALSE(advice.strategies.front().fits.has_value());
  EXPECT_NE(advice_table(advice).find("--memory"), std::string::npos);
}

TEST(Advise, OffloadsToTheHostOfADevice) {
  auto question = question_for(2);
  const auto has = [&](const std::string& name) {
    const auto advice = advise(question);
    return std::ranges::count(advice.strategies, name, &StrategyAdvice::name) > 0;
  };
  EXPECT_TRUE(has("deepspeed_stage_3_offload_nvme"));
  EXPECT_FALSE(has("deepspeed_stage_2_offload"));
  question.on_device = true;
  EXPECT_FALSE(has("deepspeed_stage_3_offload_nvme"));
  EXPECT_TRUE(has("deepspeed_stage_2_offload"));
  EXPECT_EQ(row_of(advise(question), "ddp").buffers_bytes, kP);  // buckets of gradients
}

TEST(Advise, AsJson) {
  const auto advice =
      advise({.model = transformer_of(124'000'000), .world_size = 2, .memory_bytes = 1 << 30});
  const auto json = nlohmann::json::parse(advice_json(advice));
  EXPECT_EQ(json["recommended"], "deepspeed_stage_2_offload, nvme");
  EXPECT_EQ(json["question"]["parameters"], 124'000'000);
  EXPECT_EQ(json["strategies"].size(), advice.strategies.size());
  for (const auto& row : json["strategies"])
    EXPECT_EQ(row["recommended"], row["name"] == json["recommended"]);
}

// One arithmetic, asked in two ways.
TEST(Advise, AgreesWithEstimateMemory) {
  auto question = question_for(8);
  question.model.in_units = kParameters;
  const auto advice = advise(question);
  const char* kNames[] = {"ddp", "deepspeed_stage_1", "deepspeed_stage_2", "fsdp FULL_SHARD"};
  for (int stage = 0; stage < 4; ++stage) {
    const auto estimate = estimate_rank_memory(
        {.params = kParameters, .largest_layer = kUnit, .gpus_per_node = 8, .stage = stage});
    // Of stages 1 and 2 estimate-memory is not told how large what is on its way is.
    const auto on_its_way = stage == 1 || stage == 2 ? 3 * 4 * kUnit : 0;
    EXPECT_EQ(row_of(advice, kNames[stage]).peak_bytes, estimate.front().fp32_bytes + on_its_way) << stage;
  }
}

TEST(Advise, RefusesWhatCannotBe) {
  const auto expect_refused = [](const AdviceQuestion& question, const std::vector<std::string>& parts) {
    test::expect_error<ConfigError>([&] { advise(question); }, parts);
  };
  expect_refused({}, {"parameters of the model", "at least 1", "0"});
  test::expect_error<ConfigError>([] { transformer_of(1000, 1001); },
                                  {"layers of the model", "at most its parameters, 1000", "1001"});
  expect_refused(question_for(0), {"world size"});
  expect_refused(question_for(2, 4), {"one rank on each node", "2 ranks on 4 nodes"});
  expect_refused(question_for(8, 3), {"as many ranks on each node", "8 ranks on 3 nodes"});
  auto question = question_for(2);
  question.memory_bytes = -1;
  expect_refused(question, {"memory of a rank", "-1"});
  question = question_for(2);
  question.precision = "bf16-mixd";
  expect_refused(question, {"precision", "did you mean bf16-mixed"});
  question = question_for(2);
  question.optimizer = "LBFGS";
  expect_refused(question, {"optimizer", "AdamW", "LBFGS"});
  question = question_for(2);
  question.activation_bytes = -5;
  expect_refused(question, {"activations", "-5"});
  test::expect_error<ConfigError>([] { transformer_of(0); }, {"parameters"});
  test::expect_error<ConfigError>([] { transformer_of(10, 0); }, {"layers"});
}

TEST(Advise, ReadsSizes) {
  EXPECT_EQ(parse_memory_size("80GiB").value_or(0), 80LL << 30);
  EXPECT_EQ(parse_memory_size("80GB").value_or(0), 80'000'000'000);
  EXPECT_EQ(parse_memory_size("512 mib").value_or(0), 512 << 20);
  EXPECT_EQ(parse_memory_size("1.5G").value_or(0), 3LL << 29);
  EXPECT_EQ(parse_memory_size("1000").value_or(0), 1000);
  for (const char* text : {"", "GiB", "0", "-3GiB", "12Q", "1 2", "1e40", "nan", "0x10", "5GBs"})
    EXPECT_FALSE(parse_memory_size(text)) << text;
}

TEST(Advise, ANumberIsATransformer) {
  const auto gpt2 = transformer_of(85'000'000);  // without its embeddings: 12 layers of 768
  EXPECT_EQ(gpt2.units, 12);
  EXPECT_NEAR(static_cast<double>(gpt2.features), 16 * 12 * 768, 0.02 * 16 * 12 * 768);
  EXPECT_EQ(transformer_of(1200, 3).largest_unit, 400);
}

// Two blocks of a matrix of 64 x 80 and a vector, an embedding that is tied, and a vector.
class ModelFiles : public ::testing::Test {
 protected:
  void write(const std::filesystem::path& file, const std::string& block) {
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, std::byte fill) {
      std::size_t elements = 1;
      for (const auto extent : shape) elements *= static_cast<std::size_t>(extent);
      bytes_.emplace_back(elements * 4, fill);
      tensors_.push_back({name, safetensors::Dtype::kF32, std::move(shape), bytes_.back()});
    };
    bytes_.reserve(10);
    add("embedding.weight", {200, 64}, std::byte{1});
    add("head.weight", {200, 64}, std::byte{1});
    for (int number = 0; number < 2; ++number) {
      const auto name = block + std::to_string(number);
      add(name + ".linear.weight", {80, 64}, std::byte(2 + number));
      add(name + ".linear.bias", {80}, std::byte{0});
    }
    add("norm.weight", {64}, std::byte{0});
    safetensors::write(file, tensors_);
  }

  test::TemporaryFolder folder_;

 private:
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<safetensors::TensorView> tensors_;
};

TEST_F(ModelFiles, BlocksAreUnits) {
  write(folder_ / "model.safetensors", "layers.");
  for (const auto& path : {folder_ / "model.safetensors", folder_.path()}) {
    const auto size = model_size(path);
    EXPECT_EQ(size.parameters, 200 * 64 + 2 * (80 * 64 + 80) + 64);
    EXPECT_EQ(size.units, 2);
    EXPECT_EQ(size.largest_unit, 80 * 64 + 80);
    EXPECT_EQ(size.in_units, 2 * size.largest_unit);
    EXPECT_EQ(size.features, 2 * (80 + 64) + 64 + 3 * 200);
  }
}

TEST_F(ModelFiles, WithoutBlocksAllMatricesCount) {
  write(folder_ / "model.safetensors", "layer_");
  const auto size = model_size(folder_ / "model.safetensors");
  EXPECT_EQ(size.units, 0);
  EXPECT_EQ(size.features, 2 * (80 + 64) + 200 + 64);
}

TEST_F(ModelFiles, FoldersThatAreNoModelSayWhatTheyLack) {
  test::expect_error<CheckpointError>([&] { model_size(folder_.path()); },
                                      {"is no model", "run directory", "an empty folder"});
  std::ofstream(folder_ / "run.json") << "{}";
  test::expect_error<CheckpointError>([&] { model_size(folder_.path()); },
                                      {"has no checkpoint", "checkpoints/NAME.ckpt"});
}

launch::CommandResult run_advise(std::vector<std::string> words) {
  words.insert(words.begin(), {test::in_build("bin/lockstep").string(), "advise"});
  return launch::run_command(words, std::chrono::seconds(20));
}

TEST(AdviseVerb, MarksTheRecommendedRow) {
  const auto text =
      run_advise({"124M", "--world", "2", "--memory", "16GiB", "--batch", "4", "--context", "256"}).output;
  EXPECT_NE(
      text.find("124,000,000 parameters in 14 units, AdamW, 32-true; 2 ranks on 1 node, 16.0 GiB for each"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("\n* ddp "), std::string::npos) << text;
  EXPECT_NE(text.find("  --trainer.strategy ddp --trainer.devices 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("hold the whole model, and no strategy sends less"), std::string::npos) << text;
  const auto json = run_advise({"124M", "--world", "2", "--memory", "1GiB", "--json"}).output;
  EXPECT_TRUE(json.starts_with("{\n  \"question\": {\n    \"parameters\": 124000000,")) << json;
}

TEST(AdviseVerb, NamesWhatIsWrong) {
  const auto expect_refused = [](std::vector<std::string> words, const std::vector<std::string>& parts,
                                 int status = 2) {
    const auto result = run_advise(std::move(words));
    EXPECT_EQ(result.status, status) << result.output;
    for (const auto& part : parts) EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  };
  expect_refused({}, {"MODEL is required", "--memory"});
  expect_refused({"lots"}, {"MODEL", "124M", "\"lots\""});
  expect_refused({"gone.safetensors"}, {"MODEL", "that is there", "gone.safetensors"});
  expect_refused({"7B", "--memory", "-80GiB"}, {"--memory", "80GiB", "-80GiB"});
  expect_refused({"7B", "--activations", "many"}, {"--activations", "many"});
  expect_refused({"7B", "--world", "2", "--nodes", "4"}, {"one rank on each node", "2 ranks on 4 nodes"});
  expect_refused({"7B", "--accelerator", "tpu"}, {"--accelerator", "tpu"});
  const test::TemporaryFolder folder;
  expect_refused({folder.path().string()}, {"is no model", "run directory"}, 1);
}

}  // namespace
}  // namespace lockstep
