// Fp16Mixed: torch.autocast with float16, and a scaler that keeps gradients within its range.
#pragma once

#include <lockstep/precision/grad_scaler.h>
#include <lockstep/precision/precision.h>

namespace lockstep {

class Fp16MixedPrecision final : public Precision {
 public:
  explicit Fp16MixedPrecision(const GradScalerOptions& scaler) { set_grad_scaler(scaler); }

  std::string_view name() const override { return "16-mixed"; }
  bool converts_inputs() const override { return false; }
  ForwardScope forward_scope() const override { return ForwardScope(at::kHalf); }
  std::string_view state_key() const override { return "MixedPrecision"; }
};

}  // namespace lockstep
