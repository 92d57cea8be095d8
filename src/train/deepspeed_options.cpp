#include "train/deepspeed_options.h"

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/deepspeed/complete.h>

#include "strategy/deepspeed_optimizer.h"
#include "strategy/deepspeed_run.h"

namespace lockstep::detail {
namespace {

std::optional<std::int64_t> accumulation_in(const TrainerOptions& options) {
  const auto& schedule = options.accumulate_grad_batches;
  if (schedule.last_change() > 0) {
    throw ConfigError("train", {.what = "accumulate_grad_batches under strategy deepspeed",
                                .expected = "one number: windows run on across epochs",
                                .got = schedule.print()});
  }
  return schedule == 1 ? std::nullopt : std::optional(schedule.at(0));
}

void apply_accumulation(TrainerOptions& options, const DeepSpeedConfig& config, int world_size) {
  const auto accumulation = accumulation_of(config, world_size, accumulation_in(options));
  if (accumulation) options.accumulate_grad_batches = static_cast<int>(*accumulation);
  if (options.partial_window == PartialWindow::kAccumulated) options.partial_window = PartialWindow::kCarry;
}

void apply_clipping(TrainerOptions& options, DeepSpeedConfig config) {
  complete(config, {.gradient_clip_val = options.gradient_clip_val});
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

Optimizers with_deepspeed(Optimizers own, const StrategyOptions& strategy) {
  const auto* const chosen = std::get_if<DeepSpeed>(&strategy);
  if (chosen == nullptr) return own;
  const auto config = deepspeed_run(*chosen, deepspeed::Dtype::kFp32).config;
  if (!own.optimizer && own.others.empty()) return optimizers_of(config);
  if (own.others.empty() && !own.lr_scheduler) own.lr_scheduler = scheduler_of(config);
  return own;
}

void check_deepspeed_batch(const StrategyOptions& strategy, std::int64_t batch_size) {
  const auto* const chosen = std::get_if<DeepSpeed>(&strategy);
  if (chosen == nullptr || batch_size < 1) return;
  auto config = deepspeed_run(*chosen, deepspeed::Dtype::kFp32).config;
  complete(config, {.micro_batch_size = batch_size});
}

void apply_deepspeed(TrainerOptions& options, int world_size, bool is_global_zero) {
  const auto* const chosen = std::get_if<DeepSpeed>(&options.strategy);
  if (chosen == nullptr) return;
  const auto run = deepspeed_run(*chosen, deepspeed::Dtype::kFp32);
  if (is_global_zero) {
    for (const auto& warning : run.warnings) log_warning(warning);
  }
  options.precision = precision_of(run.config, options.precision);
  apply_accumulation(options, run.config, world_size);
  apply_clipping(options, run.config);
}

}  // namespace lockstep::detail
