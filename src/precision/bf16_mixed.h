// Bf16Mixed: torch.autocast with bfloat16. No scaler: bfloat16 has float32's range.
#pragma once

#include <lockstep/precision/precision.h>

namespace lockstep {

class Bf16MixedPrecision final : public Precision {
 public:
  std::string_view name() const override { return "bf16-mixed"; }
  bool converts_inputs() const override { return false; }
  ForwardScope forward_scope() const override { return ForwardScope(at::kBFloat16); }
};

}  // namespace lockstep
