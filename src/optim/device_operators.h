// Steps of optimizers and norms of gradients on any device, as operators of LibTorch's dispatcher: each
// device has kernels of its own, and what depends on values stays on it. The kernels of the CPU, which tests
// run on simulated devices, have the bits of kernels.h.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_options.h>

#include "optim/adam_steps.h"
#include "optim/lamb_kernel.h"

namespace lockstep::detail {

/// Parameters that one operator updates together, all on one device, of one element type, float32 or float64,
/// and with settings in common; the rest by parameter.
struct DeviceBatch {
  std::vector<std::string> names = {};
  std::vector<at::Tensor> parameters = {};
  std::vector<at::Tensor> gradients = {};             ///< of any floating type
  std::vector<std::vector<at::Tensor>> buffers = {};  ///< by kind; contiguous, in the parameters' type
  std::vector<at::Tensor> steps = {};                 ///< steps taken, float32 without dimensions; counted on
  std::optional<at::Tensor> grad_scale = {};  ///< multiplies gradients first; float64 without dimensions
  std::optional<at::Tensor> found_inf = {};   ///< 1: the step is left out; float32 without dimensions
  std::optional<at::Tensor> lr =
      {};  ///< in place of the group's, in captured steps; float64 without dimensions
};

// Updates of a batch. They block nothing, and may write to gradients what has been multiplied.
void adam_step(const DeviceBatch& batch, const Optimizer::Group& group, const AdamSettings& settings);
void sgd_step(const DeviceBatch& batch, const Optimizer::Group& group, double dampening, bool nesterov,
              bool maximize);
void adagrad_step(const DeviceBatch& batch, const Optimizer::Group& group, double lr_decay, double eps,
                  bool maximize);
void lion_step(const DeviceBatch& batch, const Optimizer::Group& group);

/// Lamb's first pass: takes gradients into the means. Returns the sums of squares of each block of kLambBlock
/// elements of the parameters, one after the other, and of their updates: [blocks, 2], float64.
at::Tensor lamb_moments(const DeviceBatch& batch, const Optimizer::Group& group, const Lamb& options);

/// Its second pass. `squares` has the blocks of the whole parameters, `blocks` how many each has.
void lamb_move(const DeviceBatch& batch, const at::Tensor& squares, std::span<const std::int64_t> blocks,
               const Optimizer::Group& group, const Lamb& options);

/// block_square_sums() of dense, real gradients of any floating type, one after the other, float64 on their
/// device. At least one.
at::Tensor device_square_sums(at::TensorList gradients);

/// clip_coefficient() of a norm, without dimensions.
at::Tensor device_clip_coefficient(const at::Tensor& norm, double max_norm);

/// Multiplies gradients, on one device, by a number that is there.
void device_scale(std::span<const at::Tensor> gradients, const at::Tensor& coefficient);

/// pairwise_sum() of a flat float64 tensor, without dimensions.
at::Tensor device_pairwise_sum(const at::Tensor& values);

}  // namespace lockstep::detail
