// Weights of a file go into a module.
#pragma once

#include <filesystem>
#include <functional>

#include <ATen/core/Tensor.h>

#include <lockstep/checkpoint/weight_names.h>
#include <lockstep/state/module_state.h>

#include "checkpoint/stored_weights.h"

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// As lockstep::load_weights(), but calls `put` with each tensor of `module` that `path` has, and with the
/// function that reads it.
IncompatibleKeys load_weights(const std::filesystem::path& path, const torch::nn::Module& module,
                              const WeightNames& names, bool strict,
                              const std::function<void(const at::Tensor&, const StoredTensor&)>& put);

}  // namespace lockstep::detail
