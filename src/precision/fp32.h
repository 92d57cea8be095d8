// Fp32: everything as the model has it.
#pragma once

#include <lockstep/precision/precision.h>

namespace lockstep {

class Fp32Precision final : public Precision {
 public:
  std::string_view name() const override { return "32-true"; }
  bool converts_inputs() const override { return false; }
};

}  // namespace lockstep
