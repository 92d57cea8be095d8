// Notices gradients that a backward pass gave to models of which its graph knew nothing.
//
// The graph of a loss shows by its leaves which models it trains, unless a function hides a graph of its own
// and runs that backward from within. Such a model would be trained on gradients that were never averaged.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/torch.h>

namespace lockstep::detail {

class GradientWatch {
 public:
  void add(const torch::nn::Module& module);
  /// @throws ConfigError when a gradient has changed since add()
  void check() const;

 private:
  struct Seen {
    at::Tensor parameter;
    const at::TensorImpl* gradient;
    std::int64_t version;
  };

  std::vector<Seen> seen_;
};

}  // namespace lockstep::detail
