#include <lockstep/strategy/strategy_options.h>

#include <array>

#include <lockstep/base/error.h>
#include <lockstep/device/accelerator.h>
#include <lockstep/strategy/strategy.h>

#include "device/xla_library_interface.h"
#include "strategy/ddp_strategy.h"
#include "strategy/deepspeed_strategy.h"
#include "strategy/sharded_strategy.h"
#include "strategy/single_device_strategy.h"
#include "strategy/xla_strategy.h"

namespace lockstep {
namespace {

using Row = Choice<StrategyOptions>;

Row not_there(std::string_view name, std::string_view reason) { return {name, Auto{}, "not there", reason}; }

// One for each alternative of StrategyOptions, so that none is forgotten.
std::shared_ptr<Strategy> make(const Ddp& ddp, int) { return std::make_shared<DdpStrategy>(ddp); }
std::shared_ptr<Strategy> make(const Fsdp& fsdp, int) { return std::make_shared<FsdpStrategy>(fsdp); }

std::shared_ptr<Strategy> make(const DeepSpeed& deepspeed, int) {
  return std::make_shared<DeepSpeedStrategy>(deepspeed);
}

void require_one_rank(const std::string& strategy, const std::string& instead, int world_size) {
  if (world_size <= 1) return;
  throw ConfigError("strategy", {.what = "strategy " + strategy,
                                 .expected = "one rank",
                                 .got = std::to_string(world_size) + " ranks",
                                 .where = "",
                                 .hint = "use strategy " + instead + ", or devices 1"});
}

std::shared_ptr<Strategy> make(const SingleDevice&, int world_size) {
  require_one_rank("single_device", "ddp", world_size);
  return std::make_shared<SingleDeviceStrategy>();
}

std::shared_ptr<Strategy> make(const SingleXla&, int world_size) {
  require_one_rank("single_xla", "xla", world_size);
  return std::make_shared<SingleXlaStrategy>();
}

std::shared_ptr<Strategy> make(const Xla& xla, int) { return std::make_shared<XlaStrategy>(xla); }

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
      Row{"single_xla", SingleXla{}, "one process on one device of a PJRT plug-in"},
      Row{"xla", Xla{}, "every rank holds the model on a device of a PJRT plug-in, gradients are averaged"},
      not_there("dp", "it is gone from Lightning 2, too; use ddp"),
      not_there(
          "xla_debug",
          "it is xla with the reports of torch_xla, which lockstep does not have; use xla, and its option "
          "fallback error to find operators that are not lowered (docs/xla.md of the sources)"),
      not_there("xla_fsdp",
                "torch_xla's sharding is not built for devices of XLA; use xla there, and fsdp on CPUs and "
                "CUDA devices (docs/status.md of the sources)"),
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

namespace {

bool is_on_xla(const StrategyOptions& options) {
  return std::holds_alternative<SingleXla>(options) || std::holds_alternative<Xla>(options);
}

[[noreturn]] void refuse_accelerator(const std::string& what, const std::string& expected,
                                     const std::string& accelerator, const std::string& hint) {
  throw ConfigError("strategy",
                    {.what = what, .expected = expected, .got = '"' + accelerator + '"', .hint = hint});
}

template <class Options>
void configure(const Options& options) {
  const XlaFallback fallback = options.fallback;
  detail::configure_xla(
      {.plugin = options.pjrt_plugin.string(),
       .fallback = fallback == XlaFallback::kAuto ? "" : OptionType<XlaFallback>::print(fallback),
       .cache = options.compile_cache.string(),
       .partitions = options.devices_per_process});
}

// Shards and averages that go on while backward runs would end the program again and again.
void check_on_xla(const StrategyOptions& options, int world_size) {
  const bool shards = std::holds_alternative<Fsdp>(options) || std::holds_alternative<DeepSpeed>(options);
  if (!shards && !(std::holds_alternative<Ddp>(options) && world_size > 1)) return;
  refuse_accelerator("this strategy does not train on devices of XLA", "strategy xla, single_xla or auto",
                     "xla", "use strategy xla, or another accelerator");
}

// What `accelerator` is for a strategy that may choose it.
std::string chosen_by(const StrategyOptions& options, const std::string& accelerator) {
  if (!is_on_xla(options)) return accelerator;
  const auto* const named = find_accelerator(accelerator);
  const bool is_xla = named != nullptr && named->type() == c10::DeviceType::XLA;
  if (!is_xla && accelerator != "auto")
    refuse_accelerator("strategies xla and single_xla train on devices of XLA",
                       "accelerator auto, xla or tpu", accelerator, "leave the accelerator out");
  return is_xla ? accelerator : "xla";
}

}  // namespace

DevicePlan devices_of_run(const StrategyOptions& options, const std::string& accelerator,
                          const Devices& devices, bool under_torchelastic) {
  if (const auto* const single = std::get_if<SingleXla>(&options)) configure(*single);
  if (const auto* const several = std::get_if<Xla>(&options)) configure(*several);
  auto plan = devices_to_run_on(chosen_by(options, accelerator), devices, under_torchelastic);
  if (find_accelerator(plan.accelerator)->type() == c10::DeviceType::XLA) check_on_xla(options, plan.count);
  return plan;
}

std::shared_ptr<Strategy> make_strategy(const StrategyOptions& options, int world_size,
                                        c10::DeviceType device) {
  if (device == c10::DeviceType::XLA) check_on_xla(options, world_size);
  if (std::holds_alternative<Auto>(options) && device == c10::DeviceType::XLA)
    return world_size > 1 ? make(Xla{}, world_size) : make(SingleXla{}, world_size);
  return std::visit([&](const auto& held) { return make(held, world_size); }, options);
}

}  // namespace lockstep
