#include "train/deepspeed_options.h"

#include <map>
#include <set>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
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

// Arguments that the command line names, and the stage where the strategy's name does.
std::set<std::string> arguments_in(const std::map<std::string, std::string>& flags) {
  const std::string prefix = "trainer.strategy.";
  std::set<std::string> given;
  for (const auto& [key, text] : flags) {
    if (key.starts_with(prefix)) given.insert(key.substr(prefix.size()));
    if (key == "trainer.strategy" && text.starts_with("deepspeed_stage_")) given.insert("stage");
  }
  return given;
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

Optimizers completed(Optimizers own, const DeepSpeedConfig& config, bool warns) {
  if (!own.optimizer && own.others.empty()) return optimizers_of(config);
  const auto leave_out = [&](const char* key) {
    if (warns && config.is_given(key))
      log_warning(config.named(key) + " has no effect: configure_optimizers() gives one");
  };
  leave_out("optimizer");
  if (own.others.empty() && !own.lr_scheduler) {
    own.lr_scheduler = scheduler_of(config);
  } else {
    leave_out("scheduler");
  }
  return own;
}

void check_batch_size(DeepSpeedConfig config, std::int64_t batch_size) {
  if (batch_size > 0) complete(config, {.micro_batch_size = batch_size});
}

std::optional<DeepSpeedConfig> apply_deepspeed(TrainerOptions& options, int world_size) {
  const auto* const chosen = std::get_if<DeepSpeed>(&options.strategy);
  if (chosen == nullptr) return std::nullopt;
  auto config = deepspeed_run(*chosen, arguments_in(options.run.flags)).config;
  options.precision =
      precision_of(config, options.precision, options.run.flags.contains("trainer.precision"));
  apply_accumulation(options, config, world_size);
  apply_clipping(options, config);
  return config;
}

}  // namespace lockstep::detail
