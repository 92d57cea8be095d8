#include "optim/newton_schulz.h"

#include <lockstep/torch.h>

namespace lockstep::detail {

at::Tensor orthogonalized(const at::Tensor& matrix, const NewtonSchulz& by) {
  const auto [a, b, c] = by.coefficients;
  const bool tall = matrix.size(0) > matrix.size(1);
  auto x = matrix.to(at::kBFloat16);
  if (tall) x = x.t();
  x = x / x.norm().clamp_min(by.eps);
  for (int step = 0; step < by.steps; ++step) {
    const auto gram = x.mm(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return tall ? x.t() : x;
}

}  // namespace lockstep::detail
