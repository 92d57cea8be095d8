// DeepSpeed's configuration: the JSON that is called ds_config.json, as structs.
//
// Each section is described once (`describe`), and that is what reads the JSON, writes it, checks it, names
// what is accepted and suggests the key that was meant. Defaults are those of DeepSpeed 0.19's source, where
// its documents say something else too; docs/deepspeed.md has the list.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>
#include <lockstep/deepspeed/auto_or.h>
#include <lockstep/deepspeed/lr_schedules.h>
#include <lockstep/deepspeed/optimizer_config.h>
#include <lockstep/deepspeed/side_sections.h>
#include <lockstep/deepspeed/zero_config.h>

namespace lockstep {

namespace deepspeed {

/// How the gradients of the ranks are combined.
enum class AllreduceOp { kMean, kSum };

LOCKSTEP_API std::span<const OptionName<AllreduceOp>> option_names(AllreduceOp);

}  // namespace deepspeed

/// A whole configuration. Members have the keys' names.
struct DeepSpeedConfig {
  deepspeed::AutoOr<std::optional<std::int64_t>> train_batch_size = {};  ///< samples of all ranks in a step
  deepspeed::AutoOr<std::optional<std::int64_t>> train_micro_batch_size_per_gpu = {};
  deepspeed::AutoOr<std::optional<std::int64_t>> gradient_accumulation_steps = {};
  deepspeed::AutoOr<double> gradient_clipping = 1.0;  ///< largest norm of all gradients; 0: no clipping
  std::optional<std::int64_t> steps_per_print = {};
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
  deepspeed::AllreduceOp gradient_allreduce_op = deepspeed::AllreduceOp::kMean;
  std::optional<deepspeed::Dtype> communication_data_type = {};
  std::optional<deepspeed::Dtype> seq_parallel_communication_data_type = {};
  bool managed_gradient_accumulation = true;
  bool sparse_gradients = false;
  bool zero_allow_untested_optimizer = false;
  bool zero_force_ds_cpu_optimizer = true;
  bool wall_clock_breakdown = false;
  bool memory_breakdown = false;
  bool dump_state = false;
  bool dataloader_drop_last = false;
  bool disable_allgather = false;
  deepspeed::Optimizer optimizer = {};
  deepspeed::Scheduler scheduler = {};
  deepspeed::Fp16 fp16 = {};
  deepspeed::Bf16 bf16 = {};
  deepspeed::Amp amp = {};
  deepspeed::TorchAutocast torch_autocast = {};
  deepspeed::DataTypes data_types = {};
  deepspeed::ZeroConfig zero_optimization = {};
  deepspeed::Aio aio = {};
  deepspeed::ActivationCheckpointing activation_checkpointing = {};
  deepspeed::FlopsProfiler flops_profiler = {};
  deepspeed::Monitor tensorboard = {};
  deepspeed::Monitor csv_monitor = {};
  deepspeed::CommsLogger comms_logger = {};
  deepspeed::Timers timers = {};
  deepspeed::CheckpointConfig checkpoint = {};

  /// Keys that the file has, sections included (`fp16`, `fp16.enabled`, `optimizer.params.lr`), each with its
  /// place as `file:line:column`. Empty for a configuration made in code.
  std::map<std::string, std::string> given = {};
  /// Those of them that are "auto" there.
  std::set<std::string> autos = {};
  /// The sections "optimizer" and "scheduler" that are not supported, with the error for using them. A run
  /// whose program has its own optimizer ignores it; read_deepspeed_config() throws it.
  std::map<std::string, ConfigError> refused = {};

  /// Whether the file has `key`.
  bool is_given(const std::string& key) const { return given.contains(key); }
  /// `KEY (file:line:column)` if the file has it, else `KEY`: how errors name a setting.
  LOCKSTEP_API std::string named(const std::string& key) const;
};

LOCKSTEP_API void describe(OptionVisitor& v, DeepSpeedConfig& o);

/// What parsing gives: warnings are sentences that name place and key, one for each thing that is unknown,
/// deprecated, or known and not supported.
struct ReadDeepSpeedConfig {
  DeepSpeedConfig config;             ///< what the file says
  std::vector<std::string> warnings;  ///< sentences on keys that have no effect
};

/// Reads a file.
/// @throws ConfigError as parse_deepspeed_config does, and when it cannot be read
LOCKSTEP_API ReadDeepSpeedConfig read_deepspeed_config(const std::filesystem::path& file);

/// Reads JSON with comments (`//`, `#`, `/* */`), trailing commas and bare keys; `name` stands for the file
/// in errors. Numbers such as 2e8 are integers where one is expected.
/// @throws ConfigError naming place, key, value and what is accepted: for malformed text, a key that is given
/// twice or unknown in a strict section, a value that is refused, and settings that contradict each other
LOCKSTEP_API ReadDeepSpeedConfig parse_deepspeed_config(std::string_view text, const std::string& name);

/// The whole configuration as JSON, indented by two: what parse_deepspeed_config reads back to the same.
/// Settings without a value are left out; "auto" stays "auto".
LOCKSTEP_API std::string to_json(const DeepSpeedConfig& config);

/// Checks what no single key can say: settings that exclude or need each other.
/// @throws ConfigError naming the keys, their places and what would be accepted
LOCKSTEP_API void validate(const DeepSpeedConfig& config);

}  // namespace lockstep
