// The weights that a model starts from, where it is made: what Python calls from_pretrained.
#pragma once

#include <filesystem>

#include <lockstep/base/export.h>
#include <lockstep/checkpoint/huggingface.h>

namespace lockstep {

class TrainContext;

/// For Module::configure_model(): copies the weights in `path`, of any format that read_weights() reads, into
/// `module` on rank 0, from which the strategy sends them to all. Where the strategy defers the
/// initialization of tensors, they are not initialized, but read one after the other when the strategy wants
/// them.
/// --init_weights and checkpoints, which are loaded later, go before. Blocking; all ranks call it.
/// @return what only one side has, where it is not `strict`; empty on other ranks
/// @throws as load_weights()
LOCKSTEP_API IncompatibleKeys load_first_weights(const TrainContext& context,
                                                 const std::filesystem::path& path,
                                                 const torch::nn::Module& module,
                                                 const WeightNames& names = {}, bool strict = true);

}  // namespace lockstep
