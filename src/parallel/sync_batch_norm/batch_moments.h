// Mean and variance of the channels of a batch that is spread over ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

/// Of the values of each channel; float64 on the CPU, of shape [channels].
struct BatchMoments {
  at::Tensor mean;      ///< 0 where there are no values
  at::Tensor variance;  ///< biased: the mean of the squared deviations; 0 where there are no values
  double count = 0;     ///< values per channel
};

/// Those of `input`, [N, C, ...] in float32 or float64.
BatchMoments local_moments(const at::Tensor& input);

/// Those of all ranks' values, with the same bits on every rank. Collective, blocking: one all_gather.
BatchMoments global_moments(const BatchMoments& local, const Communicator& comm);

/// Moves running statistics towards `moments` as BatchNorm does: new = (1 - momentum) * old + momentum *
/// seen, with the unbiased variance. Undefined ones stay so.
void update_running_statistics(const at::Tensor& running_mean, const at::Tensor& running_var,
                               const BatchMoments& moments, double momentum);

}  // namespace lockstep::detail
