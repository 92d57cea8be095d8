// The strategies that ship with lockstep, as values, and their names.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include <c10/core/DeviceType.h>

#include <lockstep/base/export.h>
#include <lockstep/base/options.h>
#include <lockstep/device/devices.h>
#include <lockstep/parallel/ddp/ddp.h>
#include <lockstep/parallel/sharded/fsdp.h>
#include <lockstep/parallel/xla/xla.h>
#include <lockstep/strategy/deepspeed.h>

namespace lockstep {

class Strategy;

/// One rank: SingleDevice; more: Ddp. On devices of XLA: SingleXla and Xla.
struct Auto {};

/// One process on one device, no group.
struct SingleDevice {};

/// A strategy by its options, by a name of strategy_choices() or a user's own. A name that none has is an
/// error when a Trainer or a Fabric is made.
class LOCKSTEP_API StrategyOptions : public NamedVariant<Auto, SingleDevice, Ddp, Fsdp, DeepSpeed, SingleXla,
                                                         Xla, std::shared_ptr<Strategy>> {
 public:
  /// What names an alternative.
  using NamedVariant::NamedVariant;
  StrategyOptions(std::string_view name);
  StrategyOptions(const std::string& name) : StrategyOptions(std::string_view(name)) {}
  StrategyOptions(const char* name) : StrategyOptions(std::string_view(name)) {}
};

/// How the ranks of a strategy come to be: what options of several ranks have in common.
struct RankStart {
  StartMethod start_method = StartMethod::kAuto;  ///< how ranks come to be
  EnvironmentChoice cluster_environment = {};     ///< who told each rank its place
};

/// Those of `options`; nothing for strategies that do not say.
LOCKSTEP_API std::optional<RankStart> rank_start(const StrategyOptions& options);

/// Lightning's strategy registry: every name it knows, with the value it stands for. Names of
/// strategies that are not built yet are listed too and say so when they are picked.
LOCKSTEP_API std::span<const Choice<StrategyOptions>> strategy_choices();

/// devices_to_run_on() for a run with the strategy `options`: strategies on XLA choose the accelerator, and
/// tell it their own options.
/// @throws ConfigError naming both where strategy and accelerator contradict each other
LOCKSTEP_API DevicePlan devices_of_run(const StrategyOptions& options, const std::string& accelerator,
                                       const Devices& devices, bool under_torchelastic = false);

/// The strategy that `options` ask for, for a run of `world_size` ranks on that kind of device.
/// @throws ConfigError when it cannot have that many ranks there
LOCKSTEP_API std::shared_ptr<Strategy> make_strategy(const StrategyOptions& options, int world_size,
                                                     c10::DeviceType device = c10::DeviceType::CPU);

}  // namespace lockstep
