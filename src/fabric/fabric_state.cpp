#include "fabric/fabric_state.h"

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/launch/join.h>

#include "strategy/deepspeed_optimizer.h"
#include "strategy/deepspeed_run.h"

namespace lockstep::detail {
namespace {

FabricOptions checked(FabricOptions options) {
  OptionTree tree;
  tree.add("fabric", options);
  tree.validate();
  if (options.run.run_dir.empty()) options.run.run_dir = env::get("LOCKSTEP_RUN_DIR").value_or("");
  return options;
}

[[noreturn]] void refuse_twice(const std::string& got) {
  throw ConfigError("fabric", {.what = "setup() was given what is set up already",
                               .expected = "each model once, and no parameter in two models",
                               .got = got,
                               .hint = "create another optimizer for a model by setup_optimizers()"});
}

std::optional<DeepSpeedConfig> configuration_of(const FabricOptions& options) {
  const auto* const chosen = std::get_if<DeepSpeed>(&options.strategy);
  if (chosen == nullptr) return std::nullopt;
  return deepspeed_run(*chosen, deepspeed_arguments_in(options.run.flags, "fabric.strategy")).config;
}

PrecisionOptions chosen_precision(const std::optional<DeepSpeedConfig>& deepspeed,
                                  const FabricOptions& options) {
  if (!deepspeed) return options.precision;
  return precision_of(*deepspeed, options.precision, options.run.flags.contains("fabric.precision"));
}

}  // namespace

FabricState::FabricState(FabricOptions chosen)
    : options(checked(std::move(chosen))),
      deepspeed(configuration_of(options)),
      connector({.accelerator = options.accelerator,
                 .devices = options.devices,
                 .num_nodes = options.num_nodes,
                 .strategy = options.strategy,
                 .cuda_graphs = options.cuda_graphs,
                 .expandable_segments = options.expandable_segments,
                 .cluster_environment = options.cluster_environment}) {
  if (!connector.must_start_ranks()) strategy = connector.join();
  precision = make_precision(chosen_precision(deepspeed, options));
}

GradientClip FabricState::clip() const {
  return {.value = deepspeed ? deepspeed->gradient_clipping.value : 0.0};
}

// Ranks that only the program's own environment knows of have claimed a folder each.
void FabricState::share_run_directory() {
  const auto& environment = *connector.environment();
  if (!environment.creates_processes_externally() || started_by_launcher() || environment.world_size() == 1)
    return;
  auto& run = options.run;
  if (environment.global_rank() != 0 && run.leave_run_dir) run.leave_run_dir();
  run.run_dir = strategy->communicator().broadcast_bytes(run.run_dir.string(), 0);
}

void FabricState::warn_of_what_programs_do() const {
  if (!deepspeed) return;
  const auto& config = *deepspeed;
  std::string names;
  const auto add = [&](const char* key, bool is_asked_for) {
    if (is_asked_for) names += (names.empty() ? "" : ", ") + config.named(key);
  };
  for (const char* const key :
       {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
    add(key, config.is_given(key));
  for (const char* const key : {"optimizer", "scheduler"}) add(key, has_section(config, key));
  add("steps_per_print", config.steps_per_print.has_value());
  add("wall_clock_breakdown", config.wall_clock_breakdown);
  add("memory_breakdown", config.memory_breakdown);
  add("dump_state", config.dump_state);
  add("flops_profiler.enabled", config.flops_profiler.enabled);
  add("tensorboard.enabled", config.tensorboard.enabled);
  add("csv_monitor.enabled", config.csv_monitor.enabled);
  add("comms_logger.enabled", config.comms_logger.enabled);
  const auto& arguments = std::get<DeepSpeed>(options.strategy);
  add("learning_rate", arguments.learning_rate.has_value());
  add("warmup_steps", arguments.warmup_steps > 0);
  add("warmup_ratio", arguments.warmup_ratio > 0);
  if (names.empty()) return;
  log_warning(
      names +
      ": no effect under Fabric, whose program loads batches, accumulates, makes optimizers and reports");
}

void FabricState::require_launched(const char* call) const {
  if (launched) return;
  throw ConfigError("fabric",
                    {.what = std::string(call) + " was called before launch()",
                     .expected = "fabric.launch() first, as there are several ranks",
                     .got = std::to_string(connector.world_size()) + " ranks that are not connected"});
}

void FabricState::refuse_second_setup(const torch::nn::Module& module) const {
  if (modules.find(module)) refuse_twice("the same " + module.name());
  for (const auto& item : module.named_parameters()) {
    if (modules.has(item.value())) {
      refuse_twice("parameter " + item.key() + " of " + module.name() + ", which another model holds too");
    }
  }
}

}  // namespace lockstep::detail
