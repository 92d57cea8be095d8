// What Lightning's strategy writes for its arguments, and what a Trainer adds.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>
#include <lockstep/base/options.h>
#include <lockstep/deepspeed/arguments.h>
#include <lockstep/deepspeed/batch_sizes.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using deepspeed::Dtype;
using deepspeed::OffloadDevice;
using nlohmann::json;
using test::expect_error;

DeepSpeedConfig parsed(std::string_view text) { return parse_deepspeed_config(text, "ds.json").config; }

DeepSpeedConfig completed(DeepSpeedConfig config, const TrainerSettings& settings) {
  complete(config, settings);
  return config;
}

TEST(DeepSpeedArguments, DefaultsAreLightnings) {
  const auto written = json::parse(to_json(deepspeed_config({}, Dtype::kFp32)));
  const json expected = {{"stage", 2},
                         {"contiguous_gradients", true},
                         {"overlap_comm", true},
                         {"allgather_partitions", true},
                         {"reduce_scatter", true},
                         {"allgather_bucket_size", 200000000},
                         {"reduce_bucket_size", 200000000},
                         {"sub_group_size", 1000000000000}};
  for (const auto& [key, value] : expected.items())
    EXPECT_EQ(written["zero_optimization"][key], value) << key;
  EXPECT_EQ(written["zero_allow_untested_optimizer"], true);
  EXPECT_EQ(written["zero_optimization"]["offload_optimizer"]["device"], "none");
  EXPECT_EQ(written["aio"]["block_size"], 1048576);
  EXPECT_EQ(written["gradient_clipping"], 0.0);
  EXPECT_EQ(written["fp16"]["enabled"], false);
}

TEST(DeepSpeedArguments, OffloadFlagsMakeSections) {
  const auto config = deepspeed_config({.stage = 3,
                                        .offload_optimizer = true,
                                        .offload_parameters = true,
                                        .offload_params_device = OffloadDevice::kNvme,
                                        .nvme_path = "/scratch",
                                        .max_in_cpu = 7,
                                        .optimizer_buffer_count = 9},
                                       Dtype::kFp32);
  const auto& zero = config.zero_optimization;
  EXPECT_EQ(zero.offload_optimizer.device, OffloadDevice::kCpu);
  EXPECT_EQ(zero.offload_optimizer.buffer_count, 9);
  EXPECT_FALSE(zero.offload_optimizer.pin_memory) << "Lightning's default, not DeepSpeed's";
  EXPECT_EQ(zero.offload_param.device, OffloadDevice::kNvme);
  EXPECT_EQ(zero.offload_param.nvme_path, "/scratch");
  EXPECT_EQ(zero.offload_param.max_in_cpu, 7);
}

TEST(DeepSpeedArguments, LossScalesBelongToFp16Alone) {
  const DeepSpeedArguments arguments{.loss_scale = 128, .hysteresis = 5};
  const auto fp16 = deepspeed_config(arguments, Dtype::kFp16);
  EXPECT_TRUE(fp16.fp16.enabled.value);
  EXPECT_EQ(fp16.fp16.loss_scale, 128);
  EXPECT_EQ(fp16.fp16.hysteresis, 5);
  const auto bf16 = deepspeed_config(arguments, Dtype::kBf16);
  EXPECT_TRUE(bf16.bf16.enabled.value);
  EXPECT_FALSE(bf16.fp16.enabled.value);
  EXPECT_EQ(bf16.fp16.hysteresis, 2);
}

TEST(DeepSpeedArguments, WithoutZeroThereIsNoStage) {
  EXPECT_EQ(deepspeed_config({.zero_optimization = false}, Dtype::kFp32).zero_optimization.stage, 0);
}

TEST(DeepSpeedArguments, RefusesWrongValues) {
  expect_error<ConfigError>([] { deepspeed_config({.stage = 4}, Dtype::kFp32); }, {"stage", "0..3", "4"});
  expect_error<ConfigError>([] { deepspeed_config({.allgather_bucket_size = 33}, Dtype::kFp32); },
                            {"allgather_bucket_size", "an even number", "33"});
  expect_error<ConfigError>([] { deepspeed_config({.contiguous_memory_optimization = true}, Dtype::kFp32); },
                            {"contiguous_memory_optimization"});
}

TEST(DeepSpeedArguments, EveryOneChangesTheConfiguration) {
  DeepSpeedArguments arguments;
  OptionTree tree;
  tree.add("", arguments);
  const auto text = [&] {
    auto copy = arguments;
    copy.offload_optimizer = copy.offload_parameters = true;
    if (copy.contiguous_memory_optimization) copy.contiguous_memory_optimization = false, copy.stage = 0;
    return to_json(deepspeed_config(copy, Dtype::kFp16));
  };
  const auto before = text();
  for (const auto& info : tree.list()) {
    if (info.key == "offload_optimizer" || info.key == "offload_parameters") continue;  // tested above
    arguments = {};
    std::string other = info.type == "bool" ? (info.default_value == "true" ? "false" : "true") : "6";
    if (info.key == "stage") other = "1";
    if (info.type == "path") other = "/other";
    if (info.type == "name") other = "nvme";
    const Assignment assignment{.key = info.key, .value = {.text = other}};
    tree.apply({&assignment, 1});
    EXPECT_NE(text(), before) << info.key << " = " << other;
  }
}

TEST(DeepSpeedComplete, FillsWhatIsOpen) {
  const auto c = completed(parsed(R"({"gradient_clipping": "auto", "fp16": {"enabled": "auto"}})"),
                           {.micro_batch_size = 8,
                            .accumulate_grad_batches = 4,
                            .gradient_clip_val = 0.5,
                            .precision = Dtype::kFp16});
  EXPECT_EQ(resolve_batch_sizes(c, 2), (DeepSpeedBatchSizes{64, 8, 4}));
  EXPECT_EQ(c.gradient_clipping, deepspeed::AutoOr<double>(0.5));
  EXPECT_EQ(c.fp16.enabled, deepspeed::AutoOr<bool>(true));
  EXPECT_FALSE(c.bf16.enabled.value);
}

TEST(DeepSpeedComplete, HasLightningsDefaultsWithoutATrainersWord) {
  const auto c = completed(parsed("{}"), {});
  EXPECT_EQ(c.train_micro_batch_size_per_gpu.value, 1);
  EXPECT_EQ(c.gradient_clipping.value, 0.0) << "not DeepSpeed's 1.0";
  const auto told = completed(parsed(R"({"gradient_clipping": 0.3, "train_batch_size": 32})"), {});
  EXPECT_EQ(told.gradient_clipping.value, 0.3);
  EXPECT_EQ(resolve_batch_sizes(told, 2), (DeepSpeedBatchSizes{32, 16, 1}));
}

TEST(DeepSpeedComplete, FileAndTrainerMayAgree) {
  EXPECT_NO_THROW(completed(
      parsed(R"({"gradient_accumulation_steps": 4, "gradient_clipping": 1, "bf16": {"enabled": true}})"),
      {.accumulate_grad_batches = 4, .gradient_clip_val = 1.0, .precision = Dtype::kBf16}));
}

TEST(DeepSpeedComplete, ADisagreementNamesBoth) {
  const auto expect_refused = [](std::string_view text, const TrainerSettings& settings,
                                 const std::vector<std::string>& parts) {
    expect_error<ConfigError>([&] { completed(parsed(text), settings); }, parts);
  };
  expect_refused(R"({"gradient_accumulation_steps": 4})", {.accumulate_grad_batches = 2},
                 {"gradient_accumulation_steps (ds.json:1:2)", "accumulate_grad_batches", "4 and 2"});
  expect_refused(R"({"train_micro_batch_size_per_gpu": 4})", {.micro_batch_size = 2},
                 {"train_micro_batch_size_per_gpu", "batch_size", "4 and 2"});
  expect_refused(R"({"gradient_clipping": 1.0})", {.gradient_clip_val = 0.5},
                 {"gradient_clipping (ds.json:1:2)", "gradient_clip_val", "1 and 0.5"});
  expect_refused(R"({"fp16": {"enabled": true}})", {.precision = Dtype::kFp32},
                 {"fp16.enabled (ds.json:1:11)", "precision", "true and false"});
}

}  // namespace
}  // namespace lockstep
