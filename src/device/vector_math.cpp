#include "device/vector_math.h"

#include <lockstep/torch.h>

namespace lockstep::detail {

// The functions are those of IMPLEMENT_VML_MKL in ATen/cpu/vml.h.
void choose_vector_math() {
  const at::NoGradGuard no_grad;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto x = at::full({1}, 0.5, at::TensorOptions(at::kCPU).dtype(dtype));
    for (auto* const function :
         {at::acos, at::asin, at::atan, at::cos, at::erf, at::erfc, at::erfinv, at::exp, at::log, at::log10,
          at::log2, at::sin, at::sqrt, at::tan, at::tanh, at::trunc})
      function(x);
  }
}

}  // namespace lockstep::detail
