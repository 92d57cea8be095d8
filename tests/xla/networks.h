// Networks that are trained on the device and on the CPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lockstep/optim/optimizer.h>

#include "xla/device_case.h"

namespace lockstep::test {

/// One training: a network of `kind`, its batches, AdamW and clipping, all the same for the same kind.
class NetworkTraining {
 public:
  /// @param kind  "mlp", "convnet" (with batch norm) or "transformer"
  NetworkTraining(const std::string& kind, at::Device device);

  /// {inputs, targets} of a step, on the device.
  const Tensors& batch(int step) const { return batches_[static_cast<std::size_t>(step) % batches_.size()]; }
  /// {loss}
  Tensors step(const Tensors& batch);
  Optimizer& optimizer() { return *optimizer_; }

 private:
  Function forward_;
  Tensors parameters_;
  std::vector<Tensors> batches_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace lockstep::test
