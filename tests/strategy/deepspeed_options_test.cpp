// What Lightning's strategy writes for its arguments.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>
#include <lockstep/base/options.h>
#include <lockstep/strategy/deepspeed.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using deepspeed::Dtype;
using deepspeed::OffloadDevice;
using nlohmann::json;
using test::expect_error;

TEST(DeepSpeedOptions, DefaultsAreLightnings) {
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

TEST(DeepSpeedOptions, OffloadFlagsMakeSections) {
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

TEST(DeepSpeedOptions, LossScalesBelongToFp16Alone) {
  const DeepSpeed arguments{.loss_scale = 128, .hysteresis = 5};
  const auto fp16 = deepspeed_config(arguments, Dtype::kFp16);
  EXPECT_TRUE(fp16.fp16.enabled.value);
  EXPECT_EQ(fp16.fp16.loss_scale, 128);
  EXPECT_EQ(fp16.fp16.hysteresis, 5);
  const auto bf16 = deepspeed_config(arguments, Dtype::kBf16);
  EXPECT_TRUE(bf16.bf16.enabled.value);
  EXPECT_FALSE(bf16.fp16.enabled.value);
  EXPECT_EQ(bf16.fp16.hysteresis, 2);
}

TEST(DeepSpeedOptions, WithoutZeroThereIsNoStage) {
  EXPECT_EQ(deepspeed_config({.zero_optimization = false}, Dtype::kFp32).zero_optimization.stage, 0);
}

TEST(DeepSpeedOptions, RefusesWrongValues) {
  expect_error<ConfigError>([] { deepspeed_config({.stage = 4}, Dtype::kFp32); }, {"stage", "0..3", "4"});
  expect_error<ConfigError>([] { deepspeed_config({.allgather_bucket_size = 33}, Dtype::kFp32); },
                            {"allgather_bucket_size", "an even number", "33"});
  expect_error<ConfigError>([] { deepspeed_config({.warmup_ratio = 2}, Dtype::kFp32); },
                            {"warmup_ratio", "0..1", "2"});
}

TEST(DeepSpeedOptions, EveryOneChangesTheConfiguration) {
  DeepSpeed arguments;
  OptionTree tree;
  tree.add("", arguments);
  const auto text = [&] {
    auto copy = arguments;
    copy.offload_optimizer = copy.offload_parameters = true;
    return to_json(deepspeed_config(copy, Dtype::kFp16));
  };
  const auto before = text();
  for (const auto& info : tree.list()) {
    if (info.key == "offload_optimizer" || info.key == "offload_parameters") continue;  // tested above
    if (info.key == "config") continue;
    if (info.key == "state_dict_type") break;  // of the strategy from here on
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

}  // namespace
}  // namespace lockstep
