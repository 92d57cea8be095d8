// Makes a matrix nearly orthogonal.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace lockstep::detail {

struct NewtonSchulz {
  std::array<double, 3> coefficients;  ///< a, b, c of the step X <- a X + (b X X' + c (X X')^2) X
  int steps;
  double eps;  ///< least norm that the matrix is divided by
};

/// The matrix with its singular values moved near 1, in bfloat16. Arithmetic of torch.optim.Muon.
at::Tensor orthogonalized(const at::Tensor& matrix, const NewtonSchulz& by);

}  // namespace lockstep::detail
