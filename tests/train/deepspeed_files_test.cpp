// Configurations as people publish them, one for each shape, and what a fit makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "strategy/deepspeed_run.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/temporary_folder.h"
#include "train/options/deepspeed_options.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr detail::TrainedBatches kTrained{.batch_size = 8, .accumulation = 1, .world_size = 2, .steps = 20};

/// What a fit of two ranks makes of a file.
struct Fit {
  std::unique_ptr<Optimizer> optimizer = nullptr;
  std::optional<LRScheduler> scheduler = {};
  DeepSpeedConfig config;
  std::vector<std::string> warnings = {};
  std::string filled = {};
};

Fit fit_of(const json& file, bool has_own, DeepSpeed arguments = {}) {
  const test::TemporaryFolder folder;
  arguments.config = folder.file("ds.json", file.dump());
  TrainerOptions options{.strategy = arguments};
  auto trained = kTrained;
  Fit fit{.config = *detail::apply_deepspeed(options, kTrained.world_size),
          .warnings = detail::deepspeed_run(arguments).warnings};
  trained.accumulation = options.accumulate_grad_batches.at(0);
  detail::check_batch_size(fit.config, trained);
  Optimizers own;
  if (has_own) own.optimizer = SGD{.lr = 0.5};
  auto completed = detail::completed(std::move(own), fit.config, arguments, trained);
  std::ranges::move(completed.warnings, std::back_inserter(fit.warnings));
  fit.filled = completed.filled;
  fit.scheduler = completed.optimizers.lr_scheduler;
  if (completed.optimizers.optimizer)
    fit.optimizer = completed.optimizers.optimizer.create({{"matrix", at::ones({2, 2})}});
  return fit;
}

json public_files() {
  std::ifstream file(test::in_repository("tests/deepspeed/public_files.json"));
  return json::parse(file);
}

TEST(DeepSpeedFiles, OfEveryShapeTrainWarnOrAreRefused) {
  const auto files = public_files();
  EXPECT_GE(files.size(), 60u);
  std::vector<std::string> only_refused_here;
  for (const auto& row : files) {
    SCOPED_TRACE(row["name"].get<std::string>() + ": " + row["file"].dump());
    std::vector<std::string> says;
    if (row.contains("says")) says = row["says"].get<std::vector<std::string>>();
    if (row["here"] == "refused") {
      if (row["deepspeed"] == "trains") only_refused_here.push_back(row["name"]);
      test::expect_error<ConfigError>([&] { fit_of(row["file"], row["own"]); }, says);
      continue;
    }
    const auto fit = fit_of(row["file"], row["own"]);
    EXPECT_EQ(fit.warnings.empty(), row["here"] == "accepted") << ::testing::PrintToString(fit.warnings);
    std::string said = fit.filled;
    for (const auto& warning : fit.warnings) said += "\n" + warning;
    for (const auto& words : says) EXPECT_THAT(said, HasSubstr(words));
    ASSERT_NE(fit.optimizer, nullptr);
    EXPECT_EQ(fit.optimizer->name() == "SGD" && fit.optimizer->groups()[0].lr == 0.5, row["own"].get<bool>());
  }
  EXPECT_THAT(only_refused_here, ::testing::UnorderedElementsAre("adafactor", "torch_scheduler",
                                                                 "torch_autocast", "scheduler_without_type"));
}

json warmup(const json& steps, const std::string& type = "WarmupLR") {
  json params = {{"warmup_num_steps", steps}, {"warmup_type", "linear"}};
  if (type != "WarmupLR") params["total_num_steps"] = "auto";
  return {{"train_micro_batch_size_per_gpu", 8}, {"scheduler", {{"type", type}, {"params", params}}}};
}

double rate_after(const Fit& fit, std::int64_t steps) {
  return deepspeed::learning_rate(std::get<DeepSpeedLR>(fit.scheduler->scheduler).scheduler, steps,
                                  {.lr = 0.5});
}

TEST(DeepSpeedFiles, TakeTheStepsOfAWarmupFromTheStrategy) {
  const auto by_steps = fit_of(warmup("auto"), true, {.warmup_steps = 10, .warmup_ratio = 0.9});
  EXPECT_EQ(rate_after(by_steps, 5), 0.25);
  EXPECT_THAT(by_steps.filled,
              ::testing::ContainsRegex("warmup_num_steps \\(.*ds.json:1:.*\\) is 10, warmup_steps of"));
  const auto by_ratio = fit_of(warmup("auto", "WarmupDecayLR"), true, {.warmup_ratio = 0.16});
  EXPECT_EQ(rate_after(by_ratio, 2), 0.0005) << "of 4 steps, 3.2 rounded up, to DeepSpeed's 0.001";
  EXPECT_THAT(by_ratio.filled, HasSubstr("is 4, warmup_ratio of the strategy, 0.16 of 20 steps"));
  EXPECT_THAT(by_ratio.filled, HasSubstr("is 20, the steps of this run"));
  auto file = warmup("auto");
  file["scheduler"]["params"]["warmup_min_lr"] = "auto";
  const auto none = fit_of(file, true);
  EXPECT_EQ(rate_after(none, 0), 0);
  EXPECT_EQ(rate_after(none, 1), rate_after(fit_of(warmup(1), true), 1)) << "as DeepSpeed's integrations";
  EXPECT_EQ(rate_after(none, 2), 0.5);
  EXPECT_EQ(rate_after(fit_of(warmup(4), true, {.warmup_steps = 4}), 2), 0.25) << "both say the same";
}

TEST(DeepSpeedFiles, RefuseArgumentsThatFillNothing) {
  const json adam = {{"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.25}}}}}};
  const json open = {{"optimizer", {{"type", "Adam"}, {"params", {{"lr", "auto"}}}}}};
  EXPECT_EQ(fit_of(open, false, {.learning_rate = 0.75}).optimizer->groups()[0].lr, 0.75);
  EXPECT_EQ(fit_of(open, false).optimizer->groups()[0].lr, 1e-3);
  EXPECT_EQ(fit_of(adam, false, {.learning_rate = 0.25}).optimizer->groups()[0].lr, 0.25);
  test::expect_error<ConfigError>([&] { fit_of(adam, false, {.learning_rate = 0.75}); },
                                  {"strategy.learning_rate", "\"auto\"", "ds.json:1:", "0.75", "0.25"});
  test::expect_error<ConfigError>([&] { fit_of(open, true, {.learning_rate = 0.75}); },
                                  {"strategy.learning_rate", "optimizer.params.lr", "none"});
  test::expect_error<ConfigError>([&] { fit_of(warmup(7), true, {.warmup_steps = 8}); },
                                  {"strategy.warmup_steps", "warmup_num_steps (", "8", "7"});
  test::expect_error<ConfigError>([&] { fit_of(json::object(), true, {.warmup_ratio = 0.5}); },
                                  {"strategy.warmup_ratio", "0.5", "none"});
}

TEST(DeepSpeedFiles, ThatNeedAKnownLengthSaySo) {
  const test::TemporaryFolder folder;
  const auto complete = [&](const json& file, DeepSpeed arguments) {
    arguments.config = folder.file("ds.json", file.dump());
    detail::completed({.optimizer = SGD{}}, detail::deepspeed_run(arguments).config, arguments, {});
  };
  test::expect_error<ConfigError>([&] { complete(warmup("auto"), {.warmup_ratio = 0.5}); },
                                  {"warmup_num_steps (", "auto", "whose length is known"});
  test::expect_error<ConfigError>([&] { complete(warmup(4, "WarmupDecayLR"), {}); },
                                  {"total_num_steps (", "auto", "whose length is known"});
}

TEST(DeepSpeedFiles, LeaveArgumentsToTheStrategy) {
  const json open = {{"zero_optimization", {{"stage", "auto"}, {"offload_optimizer", {{"device", "auto"}}}}}};
  EXPECT_EQ(fit_of(open, true).config.zero_optimization.stage, 2) << "Lightning's";
  const auto offloaded = fit_of(open, true, {.stage = 3, .offload_optimizer = true}).config;
  EXPECT_EQ(offloaded.zero_optimization.stage, 3);
  EXPECT_EQ(offloaded.zero_optimization.offload_optimizer.device, deepspeed::OffloadDevice::kCpu);
}

TEST(DeepSpeedFiles, KeepTheProgramsSchedule) {
  const json adam = {{"optimizer", {{"type", "Adam"}}}, {"scheduler", {{"type", "Nonsense"}}}};
  const test::TemporaryFolder folder;
  const DeepSpeed arguments{.config = folder.file("ds.json", adam.dump())};
  const auto result = detail::completed({.lr_scheduler = LRScheduler{.scheduler = StepLR{.step_size = 3}}},
                                        detail::deepspeed_run(arguments).config, arguments, kTrained);
  EXPECT_TRUE(std::holds_alternative<StepLR>(result.optimizers.lr_scheduler->scheduler));
  EXPECT_TRUE(result.optimizers.optimizer);
  EXPECT_THAT(result.warnings, ::testing::ElementsAre(HasSubstr("scheduler (")));
}

}  // namespace
}  // namespace lockstep
