// What a Trainer adds to a configuration.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/deepspeed/complete.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using deepspeed::Dtype;
using test::expect_error;

DeepSpeedConfig parsed(std::string_view text) { return parse_deepspeed_config(text, "ds.json").config; }

DeepSpeedConfig completed(DeepSpeedConfig config, const TrainerSettings& settings) {
  complete(config, settings);
  return config;
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
                 {"fp16.enabled (ds.json:1:11)", "fp16.enabled true in the file", "precision of 32-true"});
}

}  // namespace
}  // namespace lockstep
