#include "train/options/deepspeed_options.h"

#include <iterator>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/deepspeed/complete.h>

#include "deepspeed/read_config.h"
#include "strategy/deepspeed_optimizer.h"
#include "strategy/deepspeed_run.h"

namespace lockstep::detail {
namespace {

std::optional<std::int64_t> accumulation_in(const TrainerOptions& options) {
  const auto& schedule = options.accumulate_grad_batches;
  const bool is_asked_for = options.run.flags.contains("trainer.accumulate_grad_batches");
  return schedule == 1 && !is_asked_for ? std::nullopt : std::optional(schedule.at(0));
}

void apply_accumulation(TrainerOptions& options, const DeepSpeedConfig& config, int world_size) {
  const bool changes = !options.accumulate_grad_batches.is_constant();
  if (changes) check_accumulation(options.accumulate_grad_batches, config, world_size);
  const auto accumulation =
      changes ? std::nullopt : accumulation_of(config, world_size, accumulation_in(options));
  if (accumulation) options.accumulate_grad_batches = static_cast<int>(*accumulation);
  if (options.partial_window != PartialWindow::kAccumulated) return;
  if (options.run.flags.contains("trainer.partial_window")) {
    throw ConfigError("train", {.what = "partial_window under strategy deepspeed",
                                .expected = "carry, as windows run on across epochs, or lightning",
                                .got = "accumulated"});
  }
  options.partial_window = PartialWindow::kCarry;
}

// From here on the configuration contains what the Trainer's options have filled in.
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

// A file without any batch size takes that of the loader. DeepSpeed itself refuses such a file.
bool leaves_batches_open(const DeepSpeedConfig& config) {
  const auto leaves_open = [&](const char* key) {
    return !config.is_given(key) || config.autos.contains(key);
  };
  return leaves_open("train_batch_size") && leaves_open("train_micro_batch_size_per_gpu");
}

std::vector<Filling> filled_batches(DeepSpeedConfig config, const TrainedBatches& trained) {
  constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
  if (trained.batch_size <= 0) return {};
  complete(config, {.micro_batch_size = trained.batch_size, .accumulate_grad_batches = trained.accumulation});
  const auto sizes = resolve_batch_sizes(config, trained.world_size);
  std::vector<Filling> fillings;
  if (leaves_batches_open(config) || config.autos.contains(kMicro))
    fillings.push_back(
        {kMicro, std::to_string(sizes.train_micro_batch_size_per_gpu), "the training loader's batch_size"});
  if (config.autos.contains("gradient_accumulation_steps"))
    fillings.push_back({"gradient_accumulation_steps", std::to_string(sizes.gradient_accumulation_steps),
                        "accumulate_grad_batches of the Trainer"});
  if (config.autos.contains("train_batch_size"))
    fillings.push_back({"train_batch_size", std::to_string(sizes.train_batch_size),
                        "that of " + std::to_string(trained.world_size) + " ranks"});
  return fillings;
}

// apply_deepspeed() has put the Trainer's options into `config`.
std::vector<Filling> filled_options(const DeepSpeedConfig& config) {
  std::vector<Filling> fillings;
  for (const auto& [key, option] : {std::pair{"gradient_clipping", "gradient_clip_val"},
                                    {"fp16.enabled", "precision"},
                                    {"bf16.enabled", "precision"}}) {
    if (config.autos.contains(key))
      fillings.push_back({key, deepspeed::value_at(config, key), option + std::string(" of the Trainer")});
  }
  return fillings;
}

// Removes a section from the configuration.
void leave_out(DeepSpeedConfig& config, const std::string& section, std::vector<std::string>& warnings) {
  if (has_section(config, section))
    warnings.push_back(config.named(section) + " has no effect: configure_optimizers() gives one");
  std::erase_if(config.autos, [&](const auto& key) { return key.starts_with(section + "."); });
  config.refused.erase(section);
  if (section == "optimizer") config.optimizer = {};
  if (section == "scheduler") config.scheduler = {};
}

void add_all(std::vector<Filling>& to, std::vector<Filling> more) {
  to.insert(to.end(), std::move_iterator(more.begin()), std::move_iterator(more.end()));
}

}  // namespace

CompletedOptimizers completed(Optimizers own, const DeepSpeedConfig& config, const DeepSpeed& arguments,
                              const TrainedBatches& trained) {
  CompletedOptimizers result{.optimizers = std::move(own)};
  auto& [optimizer, scheduler, module, others] = result.optimizers;
  FilledConfig filled{.config = config};
  auto& used = filled.config;
  const bool is_programs = optimizer || !others.empty();
  if (is_programs) leave_out(used, "optimizer", result.warnings);
  if (!others.empty() || scheduler) leave_out(used, "scheduler", result.warnings);
  require_takers(used, arguments);
  if (!is_programs && has_section(used, "optimizer")) {
    fill_optimizer(filled, arguments);
    optimizer = optimizer_of(used);
  }
  if (optimizer && !scheduler && others.empty()) {
    fill_scheduler(filled, arguments, trained.steps);
    scheduler = scheduler_of(used);
  }
  if (deepspeed_file(arguments).empty()) return result;
  auto fillings = filled_batches(config, trained);
  add_all(fillings, filled_options(config));
  add_all(fillings, std::move(filled.fillings));
  result.filled = sentence_of(fillings, config);
  return result;
}

void check_batch_size(DeepSpeedConfig config, const TrainedBatches& trained) {
  if (trained.batch_size <= 0) return;
  complete(config, {.micro_batch_size = trained.batch_size, .accumulate_grad_batches = trained.accumulation});
  if (config.is_given("train_batch_size")) resolve_batch_sizes(config, trained.world_size);
}

void check_accumulation(const AccumulationSchedule& schedule, const DeepSpeedConfig& config, int world_size) {
  if (schedule.is_constant()) {
    accumulation_of(config, world_size, schedule.at(0));
    return;
  }
  for (const char* key : {"gradient_accumulation_steps", "train_batch_size"}) {
    if (!config.is_given(key) || config.autos.contains(key)) continue;
    throw ConfigError("train", {.what = "accumulate_grad_batches under strategy deepspeed",
                                .expected = "one number, as " + config.named(key) + " is one",
                                .got = schedule.print(),
                                .hint = "leave the key out of the file, or make it \"auto\""});
  }
}

std::optional<DeepSpeedConfig> apply_deepspeed(TrainerOptions& options, int world_size) {
  const auto* const chosen = std::get_if<DeepSpeed>(&options.strategy);
  if (chosen == nullptr) return std::nullopt;
  auto given = deepspeed_run(*chosen, deepspeed_arguments_in(options.run.flags, "trainer.strategy")).config;
  options.precision = precision_of(given, options.precision, options.run.flags.contains("trainer.precision"));
  auto config = with_precision(std::move(given), *chosen, options.precision);
  apply_accumulation(options, config, world_size);
  apply_clipping(options, config);
  return config;
}

}  // namespace lockstep::detail
