// Whether the tensors that are offered are those of a module.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/state/incompatible_keys.h>

namespace lockstep::detail {

/// How errors name a tensor: "tensor Float [2, 3]".
std::string tensor_kind(at::ScalarType type, at::IntArrayRef shape);

/// Name -> what there is under it: a tensor_kind() or another value of a StateTree.
using TensorKinds = std::map<std::string, std::string>;

/// Compares what a module has with what it is to load. What both have must be of one kind and, if it is
/// `strict`, neither may have names of its own.
/// @throws CheckpointError saying that `what` does not fit, in which tensors, and `where` that is
LOCKSTEP_API IncompatibleKeys match_tensors(const TensorKinds& own, const TensorKinds& offered, bool strict,
                                            std::string_view what, std::string_view where = {});

}  // namespace lockstep::detail
