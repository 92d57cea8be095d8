#include "fabric/fabric_state.h"

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

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

// DeepSpeed's configuration may say it.
PrecisionOptions wanted_precision(const FabricOptions& options) {
  const auto* const chosen = std::get_if<DeepSpeed>(&options.strategy);
  if (chosen == nullptr) return options.precision;
  return precision_of(deepspeed_run(*chosen).config, options.precision);
}

}  // namespace

FabricState::FabricState(FabricOptions chosen)
    : options(checked(std::move(chosen))),
      connector({.accelerator = options.accelerator,
                 .devices = options.devices,
                 .num_nodes = options.num_nodes,
                 .strategy = options.strategy,
                 .cluster_environment = options.cluster_environment}),
      precision(make_precision(wanted_precision(options))) {
  if (!connector.must_start_ranks()) strategy = connector.join();
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
