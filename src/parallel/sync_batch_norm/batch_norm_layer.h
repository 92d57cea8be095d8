// A BatchNorm module, and how its calls of aten::batch_norm are recognised.
#pragma once

#include <memory>
#include <string>

#include <lockstep/parallel/dispatch/tensor_mark.h>

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// What `module` hands to aten::batch_norm as its running mean; null unless it is a BatchNorm1d, BatchNorm2d
/// or BatchNorm3d.
at::Tensor* running_mean_of(torch::nn::Module& module);

/// Marks the running mean of a BatchNorm module. One without running statistics gets a placeholder to hand
/// over, which is not registered and so no part of its state.
class BatchNormLayer {
 public:
  /// `tag` is that of the mark.
  BatchNormLayer(std::string name, const std::shared_ptr<torch::nn::Module>& module, UseHandler& handler,
                 std::size_t tag);
  /// The module is what it was.
  ~BatchNormLayer();
  BatchNormLayer(const BatchNormLayer&) = delete;
  BatchNormLayer& operator=(const BatchNormLayer&) = delete;

  const std::string& name() const { return name_; }
  /// Whether `running_mean` is what the module hands over.
  bool hands_over(const at::Tensor& running_mean) const { return running_mean.is_same(mark_.tensor()); }
  /// Whether that is a placeholder, of which the operator must not know.
  bool has_placeholder() const { return has_placeholder_; }
  /// Whether the module is there and in training mode.
  bool is_training() const;
  /// Whether its calls are recognised; true as well when the module is gone.
  bool is_intact() const;

 private:
  std::string name_;
  std::weak_ptr<torch::nn::Module> module_;
  bool has_placeholder_;
  TensorMark mark_;
};

}  // namespace lockstep::detail
