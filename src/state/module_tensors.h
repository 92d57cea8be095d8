// Checks of the tensors of a module: whether other tensors fit them, whether a checkpoint can store them, and
// whether their elements share memory.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {
struct IncompatibleKeys;
class StateTree;
}  // namespace lockstep

namespace lockstep::detail {

/// How errors name a tensor: "tensor Float [2, 3]".
std::string tensor_kind(at::ScalarType type, at::IntArrayRef shape);

/// For each name the kind of its value: a tensor_kind(), or the description of another value of a StateTree.
using TensorKinds = std::map<std::string, std::string>;

/// Compares the tensors of a module with those that it is to load. Values that both have must be of the same
/// kind; with `strict`, both must have the same names.
/// @throws CheckpointError naming `what` does not fit, the tensors concerned, and `where` it is
LOCKSTEP_API IncompatibleKeys match_tensors(const TensorKinds& own, const TensorKinds& offered, bool strict,
                                            std::string_view what, std::string_view where = {});

/// Copies the tensor under `name` into `target` as StateTree::copy_to(), and as modules are loaded: where
/// both are of a floating-point type of 16 bits or more, the values are cast.
/// @throws CheckpointError as StateTree::copy_to()
LOCKSTEP_API void copy_as_loaded(const StateTree& state, std::string_view name, const at::Tensor& target);

}  // namespace lockstep::detail

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// Why the elements of `tensor` cannot be stored, in words that follow "expected" and "got"; nothing where
/// they can.
struct Unstorable {
  std::string expected;
  std::string got;

  explicit operator bool() const { return !expected.empty(); }
};

/// Checks only the kind of the tensor: it may have no memory yet.
LOCKSTEP_API Unstorable unstorable(const at::Tensor& tensor);

/// Refuses a module that cannot be saved; to be called before the first step.
/// @throws ConfigError naming the parameter or buffer of `module` that no checkpoint can hold, or that cannot
/// be loaded again, as several of its elements share memory
LOCKSTEP_API void require_storable(const torch::nn::Module& module);

/// Whether several elements of a dense tensor may share memory, as those of an expanded tensor do.
LOCKSTEP_API bool has_shared_elements(const at::Tensor& tensor);

}  // namespace lockstep::detail
