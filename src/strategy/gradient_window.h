// Gradients that are averaged in every backward of a window, and add up as averages.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/torch.h>

namespace lockstep::detail {

/// Takes the gradients off the parameters while it lives, and adds them to those that have come by then: what
/// was averaged is not averaged again.
class GradientWindow {
 public:
  /// `copies`: gradients lie in memory that the next ones will take.
  GradientWindow(std::span<torch::nn::Module* const> modules, bool copies) {
    for (auto* module : modules) {
      for (const auto& parameter : module->parameters()) {
        auto& gradient = parameter.mutable_grad();
        if (!gradient.defined()) continue;
        averages_.emplace_back(parameter, copies ? gradient.clone() : gradient);
        gradient.reset();
      }
    }
  }
  ~GradientWindow() {
    const torch::NoGradGuard no_grad;
    for (auto& [parameter, average] : averages_) {
      auto& gradient = parameter.mutable_grad();
      if (gradient.defined()) average.add_(gradient);
      gradient = std::move(average);
    }
  }
  GradientWindow(const GradientWindow&) = delete;
  GradientWindow& operator=(const GradientWindow&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> averages_;
};

}  // namespace lockstep::detail
