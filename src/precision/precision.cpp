#include <lockstep/precision/precision.h>

#include <lockstep/precision/grad_scaler.h>

namespace lockstep {

Precision::~Precision() = default;

void Precision::set_grad_scaler(const GradScalerOptions& options) {
  scaler_ = std::make_shared<GradScaler>(options);
}

}  // namespace lockstep
