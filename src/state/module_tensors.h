// The tensors of a module: whether those that are offered fit, what a checkpoint can hold of them, and
// whether they can be written element by element.
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

/// Looks at the kind of tensor only: its memory need not be there yet.
LOCKSTEP_API Unstorable unstorable(const at::Tensor& tensor);

/// To be called before the first step, when nothing is lost yet.
/// @throws ConfigError naming the parameter or buffer of `module` that no checkpoint can hold, or that cannot
/// be loaded again, as several of its elements share memory
LOCKSTEP_API void require_storable(const torch::nn::Module& module);

/// Whether several elements may lie in one place, as those of an expanded tensor do. Of dense tensors.
LOCKSTEP_API bool has_shared_elements(const at::Tensor& tensor);

}  // namespace lockstep::detail
