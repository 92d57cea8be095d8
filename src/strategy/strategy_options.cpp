#include <lockstep/strategy/strategy_options.h>

#include <array>

#include <lockstep/base/error.h>
#include <lockstep/strategy/strategy.h>

#include "strategy/ddp_strategy.h"
#include "strategy/deepspeed_strategy.h"
#include "strategy/sharded_strategy.h"
#include "strategy/single_device_strategy.h"

namespace lockstep {
namespace {

using Row = Choice<StrategyOptions>;

constexpr std::string_view kNotBuilt = "known but not built yet; docs/status.md says what is";

Row not_built(std::string_view name) { return {name, Auto{}, "not built yet", kNotBuilt}; }

// One for each alternative of StrategyOptions, so that none is forgotten.
std::shared_ptr<Strategy> make(const Ddp& ddp, int) { return std::make_shared<DdpStrategy>(ddp); }
std::shared_ptr<Strategy> make(const Fsdp& fsdp, int) { return std::make_shared<FsdpStrategy>(fsdp); }

std::shared_ptr<Strategy> make(const DeepSpeed& deepspeed, int) {
  return std::make_shared<DeepSpeedStrategy>(deepspeed);
}

std::shared_ptr<Strategy> make(const SingleDevice&, int world_size) {
  if (world_size > 1) {
    throw ConfigError("strategy", {.what = "strategy single_device",
                                   .expected = "one rank",
                                   .got = std::to_string(world_size) + " ranks",
                                   .where = "",
                                   .hint = "use strategy ddp, or devices 1"});
  }
  return std::make_shared<SingleDeviceStrategy>();
}

std::shared_ptr<Strategy> make(const Auto&, int world_size) {
  return world_size > 1 ? make(Ddp{}, world_size) : make(SingleDevice{}, world_size);
}

std::shared_ptr<Strategy> make(const std::shared_ptr<Strategy>& own, int) { return own; }

}  // namespace

std::span<const Row> strategy_choices() {
  static const std::array rows{
      Row{"auto", Auto{}, "single_device for one rank, else ddp"},
      Row{"single_device", SingleDevice{}, "one process, no group of ranks"},
      Row{"ddp", Ddp{}, "every rank holds the model, gradients are averaged during backward"},
      Row{"ddp_find_unused_parameters_true", Ddp{.find_unused_parameters = true},
          "ddp for models that leave parameters unused"},
      Row{"ddp_find_unused_parameters_false", Ddp{}, "ddp"},
      Row{"ddp_fork", Ddp{.start_method = StartMethod::kFork}, "ddp, ranks started by fork or not at all"},
      Row{"ddp_fork_find_unused_parameters_true",
          Ddp{.find_unused_parameters = true, .start_method = StartMethod::kFork},
          "ddp_fork for models that leave parameters unused"},
      Row{"ddp_fork_find_unused_parameters_false", Ddp{.start_method = StartMethod::kFork}, "ddp_fork"},
      Row{"ddp_spawn", Ddp{.start_method = StartMethod::kSpawn},
          "ddp, ranks started by running the program anew"},
      Row{"ddp_spawn_find_unused_parameters_true",
          Ddp{.find_unused_parameters = true, .start_method = StartMethod::kSpawn},
          "ddp_spawn for models that leave parameters unused"},
      Row{"ddp_spawn_find_unused_parameters_false", Ddp{.start_method = StartMethod::kSpawn}, "ddp_spawn"},
      Row{"ddp_notebook", Ddp{.start_method = StartMethod::kFork}, "ddp_fork"},
      Row{"ddp_notebook_find_unused_parameters_true",
          Ddp{.find_unused_parameters = true, .start_method = StartMethod::kFork},
          "ddp_fork for models that leave parameters unused"},
      Row{"ddp_notebook_find_unused_parameters_false", Ddp{.start_method = StartMethod::kFork}, "ddp_fork"},
      Row{"fsdp", Fsdp{}, "parameters, gradients and optimizer state are sharded over the ranks"},
      Row{"fsdp_cpu_offload", Fsdp{.cpu_offload = true},
          "fsdp whose shards and optimizer are the CPU's or, if that computes, on disk"},
      Row{"deepspeed", DeepSpeed{},
          "ZeRO: optimizer state and gradients are sharded (stage 2), or as config says"},
      Row{"deepspeed_stage_1", DeepSpeed{.stage = 1}, "optimizer state is sharded over the ranks"},
      Row{"deepspeed_stage_1_offload", DeepSpeed{.stage = 1, .offload_optimizer = true},
          "stage 1, optimizer state on the CPU"},
      Row{"deepspeed_stage_2", DeepSpeed{.stage = 2}, "optimizer state and gradients are sharded"},
      Row{"deepspeed_stage_2_offload", DeepSpeed{.stage = 2, .offload_optimizer = true},
          "stage 2, optimizer state on the CPU"},
      Row{"deepspeed_stage_3", DeepSpeed{.stage = 3},
          "optimizer state, gradients and parameters are sharded"},
      Row{"deepspeed_stage_3_offload",
          DeepSpeed{.stage = 3, .offload_optimizer = true, .offload_parameters = true},
          "stage 3, optimizer state and parameters on the CPU"},
      Row{"deepspeed_stage_3_offload_nvme",
          DeepSpeed{.stage = 3,
                    .offload_optimizer = true,
                    .offload_parameters = true,
                    .offload_optimizer_device = deepspeed::OffloadDevice::kNvme,
                    .offload_params_device = deepspeed::OffloadDevice::kNvme},
          "stage 3, optimizer state and parameters on disk, in nvme_path"},
      not_built("single_xla"),
      not_built("xla"),
      not_built("xla_debug"),
      not_built("xla_fsdp"),
  };
  return rows;
}

StrategyOptions::StrategyOptions(std::string_view name) { pick(name, strategy_choices()); }

std::optional<RankStart> rank_start(const StrategyOptions& options) {
  const auto of = []<class Options>(const Options& chosen) -> std::optional<RankStart> {
    if constexpr (requires { chosen.start_method; }) {
      return RankStart{chosen.start_method, chosen.cluster_environment};
    } else {
      return std::nullopt;
    }
  };
  return std::visit(of, options);
}

std::shared_ptr<Strategy> make_strategy(const StrategyOptions& options, int world_size) {
  return std::visit([&](const auto& held) { return make(held, world_size); }, options);
}

}  // namespace lockstep
