// What a checkpoint can hold of a module.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

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

}  // namespace lockstep::detail
