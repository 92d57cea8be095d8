#include "train/deepspeed_options.h"

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/deepspeed/batch_sizes.h>
#include <lockstep/deepspeed/complete.h>

#include "strategy/deepspeed_optimizer.h"
#include "strategy/deepspeed_run.h"

namespace lockstep::detail {
namespace {

std::optional<std::int64_t> accumulation_in(const TrainerOptions& options) {
  const auto& schedule = options.accumulate_grad_batches;
  const bool is_asked_for = options.run.flags.contains("trainer.accumulate_grad_batches");
  if (schedule.last_change() > 0) {
    throw ConfigError("train", {.what = "accumulate_grad_batches under strategy deepspeed",
                                .expected = "one number: windows run on across epochs",
                                .got = schedule.print()});
  }
  return schedule == 1 && !is_asked_for ? std::nullopt : std::optional(schedule.at(0));
}

void apply_accumulation(TrainerOptions& options, const DeepSpeedConfig& config, int world_size) {
  const auto accumulation = accumulation_of(config, world_size, accumulation_in(options));
  if (accumulation) options.accumulate_grad_batches = static_cast<int>(*accumulation);
  if (options.partial_window != PartialWindow::kAccumulated) return;
  if (options.run.flags.contains("trainer.partial_window")) {
    throw ConfigError("train", {.what = "partial_window under strategy deepspeed",
                                .expected = "carry, as windows run on across epochs, or lightning",
                                .got = "accumulated"});
  }
  options.partial_window = PartialWindow::kCarry;
}

// What the Trainer's options fill in is part of the configuration from here on.
void apply_clipping(TrainerOptions& options, DeepSpeedConfig& config) {
  auto completed = config;
  complete(completed, {.gradient_clip_val = options.gradient_clip_val});
  config.gradient_clipping = completed.gradient_clipping;
  const double norm = config.gradient_clipping.value;
  if (norm > 0 && config.is_given("gradient_clipping") &&
      options.gradient_clip_algorithm == ClipAlgorithm::kValue) {
    throw ConfigError(
        "train",
        {.what = config.named("gradient_clipping") + " and the Trainer's gradient_clip_algorithm disagree",
         .expected = "gradient_clip_algorithm = norm, which the file's number is about",
         .got = "value"});
  }
  if (norm > 0) options.gradient_clip_val = norm;
}

}  // namespace

Optimizers completed(Optimizers own, const DeepSpeedConfig& config, std::optional<std::int64_t> steps,
                     bool warns) {
  if (!own.optimizer && own.others.empty()) return optimizers_of(config, steps);
  const auto leave_out = [&](const char* key) {
    if (warns && config.is_given(key))
      log_warning(config.named(key) + " has no effect: configure_optimizers() gives one");
  };
  leave_out("optimizer");
  if (own.others.empty() && !own.lr_scheduler) {
    own.lr_scheduler = scheduler_of(config, steps);
  } else {
    leave_out("scheduler");
  }
  return own;
}

void check_batch_size(DeepSpeedConfig config, const TrainedBatches& trained) {
  if (trained.batch_size <= 0) return;
  complete(config, {.micro_batch_size = trained.batch_size, .accumulate_grad_batches = trained.accumulation});
  if (config.is_given("train_batch_size")) resolve_batch_sizes(config, trained.world_size);
}

std::optional<DeepSpeedConfig> apply_deepspeed(TrainerOptions& options, int world_size) {
  const auto* const chosen = std::get_if<DeepSpeed>(&options.strategy);
  if (chosen == nullptr) return std::nullopt;
  auto config = deepspeed_run(*chosen, deepspeed_arguments_in(options.run.flags, "trainer.strategy")).config;
  options.precision =
      precision_of(config, options.precision, options.run.flags.contains("trainer.precision"));
  config = with_precision(std::move(config), *chosen, options.precision);
  apply_accumulation(options, config, world_size);
  apply_clipping(options, config);
  return config;
}

}  // namespace lockstep::detail
