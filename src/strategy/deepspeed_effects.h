// Where DeepSpeed's configuration says something else than the arguments, and what of it training does not
// act on.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include <lockstep/deepspeed/config.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/strategy/deepspeed.h>

namespace lockstep::detail {

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
