// Where the activations of a module begin to be kept on disk, though modules have no hooks.
#pragma once

#include <memory>
#include <vector>

#include <lockstep/parallel/activation_offload.h>
#include <lockstep/parallel/dispatch/tensor_mark.h>

#include "parallel/activations/activation_store.h"
#include "parallel/activations/module_policies.h"

namespace lockstep::detail {

/// From the first operator that uses one of the module's parameters until backward, what this thread keeps
/// is kept in an ActivationStore. Only where gradients are taken.
class OffloadedActivations final : public UseHandler, public ModulePolicy {
 public:
  /// @throws ConfigError for a directory that cannot be used, a module without parameters, min_bytes < 1
  OffloadedActivations(const torch::nn::Module& module, const ActivationOffload& options, int rank);

  void announce(std::span<const TensorUse> uses) override;
  void before_use(OperatorCall&, std::span<const TensorUse>) override {}
  void mark_again() override;

 private:
  void mark();

  const std::shared_ptr<ActivationStore> store_;
  const std::vector<at::Tensor> parameters_;
  std::vector<std::unique_ptr<TensorMark>> marks_;
};

}  // namespace lockstep::detail
