// What DeepSpeed's configuration says about a run, beside how the model is sharded: where it says something
// else than the arguments, and what of it training does not act on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/deepspeed/config.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/precision/precision_options.h>
#include <lockstep/strategy/deepspeed.h>

namespace lockstep::detail {

/// A configuration, and what was noticed when it was read.
struct DeepSpeedRun {
  DeepSpeedConfig config;
  std::vector<std::string> warnings = {};
  bool is_from_file = false;
};

/// The type that a precision computes in.
deepspeed::Dtype dtype_of(const Precision& precision);

/// The file that `options` name, or LOCKSTEP_DEEPSPEED_CONFIG_PATH; empty without one.
LOCKSTEP_API std::filesystem::path deepspeed_file(const DeepSpeed& options);

/// Arguments that the command line names, by keys below `strategy` ("trainer.strategy"), and the stage where
/// the strategy's name does.
LOCKSTEP_API std::set<std::string> deepspeed_arguments_in(const std::map<std::string, std::string>& flags,
                                                          const std::string& strategy);

/// Reads that file; without one it is what the arguments come to, whatever the precision. `given`: arguments
/// that somebody has asked for, also those that are the defaults.
/// @throws ConfigError, also as check_arguments()
LOCKSTEP_API DeepSpeedRun deepspeed_run(const DeepSpeed& options, const std::set<std::string>& given = {});

/// The precision of a run: that of the configuration, where `given` is the default and nobody has asked for
/// it.
/// @throws ConfigError naming both, where they disagree; for options of a loss scale that are not
/// DeepSpeed's
LOCKSTEP_API PrecisionOptions precision_of(const DeepSpeedConfig& config, const PrecisionOptions& given,
                                           bool is_asked_for = false);

/// `config` with fp16 and bf16 as they are in a run with that precision; without a file the arguments say how
/// losses are scaled.
DeepSpeedConfig with_precision(DeepSpeedConfig config, const DeepSpeed& options,
                               const PrecisionOptions& precision);

/// Micro-batches per step, where the configuration says it, or its batch sizes do for `world_size` ranks.
/// @throws ConfigError quoting the numbers where they contradict each other, or `accumulate_grad_batches`
std::optional<std::int64_t> accumulation_of(const DeepSpeedConfig& config, int world_size,
                                            std::optional<std::int64_t> accumulate_grad_batches);

/// What the arguments say, where the file has "auto" for it.
void fill_from_arguments(DeepSpeedConfig& file, const DeepSpeed& arguments);

/// With a file the arguments are not looked at. Those that are not the defaults, or are among `given`, must
/// say what `file` says.
/// @throws ConfigError naming argument and key, and both values. Exported for tests.
LOCKSTEP_API void check_arguments(const DeepSpeed& arguments, const DeepSpeedConfig& file,
                                  const std::set<std::string>& given);

/// A sentence for each setting that asks for something that has no effect here; empty where all is done.
/// @throws ConfigError for what would change the numbers. Exported for tests
LOCKSTEP_API std::vector<std::string> without_effect(const DeepSpeedConfig& config);

/// Whether gradients of a window add up in another type than `data_types.grad_accum_dtype`, in a run that
/// computes in `computed`. Exported for tests
LOCKSTEP_API bool adds_up_otherwise(const DeepSpeedConfig& config, deepspeed::Dtype computed);

/// Whether a step is to fail where a trained parameter got no gradient: `ignore_unused_parameters` false.
bool refuses_unused_parameters(const DeepSpeedConfig& config);

/// `trained`: the module's own tensors of the optimizer's parameters.
/// @throws CommError naming those that are not frozen for now and that no rank has a gradient for, on all
/// ranks alike
void require_all_used(const DeepSpeedConfig& config, const Optimizer& optimizer,
                      std::span<const at::Tensor> trained);

}  // namespace lockstep::detail
