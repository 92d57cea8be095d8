// FlopCounter: the floating-point operations of what runs in a scope, by module.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

namespace detail {
class CountedWork;
}

/// What operators have done.
struct LOCKSTEP_API OperatorWork {
  double macs = 0;         ///< multiply-accumulate operations: matrix products, convolutions, attention
  double other_flops = 0;  ///< floating-point operations beside them: activations, norms, sums, ...
  std::chrono::nanoseconds time = {};  ///< that the operators took, also those that count nothing

  /// Floating-point operations, a multiply-accumulate being two.
  double flops() const { return 2 * macs + other_flops; }
  /// Adds what another operator did.
  OperatorWork& operator+=(const OperatorWork& more);
};

/// Counts the operators that its thread runs while it lives, those of backward passes by themselves. Formulas
/// are DeepSpeed's, by the shapes of arguments: nothing is measured but the time. Operators that no formula
/// is known for count as none. Several may live at once, the inner ones within the outer. To be destroyed by
/// the thread that made it. Operators take longer meanwhile.
class LOCKSTEP_API FlopCounter {
 public:
  FlopCounter();
  /// By the modules of `module` as well, which lives longer. An operator belongs to the module one of whose
  /// parameters it is given. One without any belongs to the innermost module that has both those before and
  /// after it.
  explicit FlopCounter(const torch::nn::Module& module);
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  /// Outside of backward passes, until now.
  OperatorWork forward() const;
  /// In backward passes, also what they compute again, until now.
  OperatorWork backward() const;

  /// That of one module, with all of its parts, outside of backward passes.
  struct ModuleWork {
    std::string path;             ///< as in named_modules(); empty: the module itself
    std::string type;             ///< of the module, without namespaces
    std::int64_t parameters = 0;  ///< elements of all, each once
    OperatorWork work = {};       ///< what the operator did
  };
  /// The module and all below it, in the order of named_modules(). Empty where none was given.
  std::vector<ModuleWork> modules() const;

 private:
  std::unique_ptr<detail::CountedWork> work_;
};

/// Floating-point operations of the matrix products, convolutions and attention of `forward`, and, given
/// `loss_of`, of the backward pass from the loss that it makes of forward's result. Lightning's
/// measure_flops; see FlopsPerBatch for what to do with it. Gradients add up where there are some. On tensors
/// on the device meta nothing is computed.
LOCKSTEP_API double measure_flops(const std::function<at::Tensor()>& forward,
                                  const std::function<at::Tensor(const at::Tensor&)>& loss_of = {});

}  // namespace lockstep
