#include <lockstep/precision/precision.h>

#include <lockstep/precision/grad_scaler.h>

namespace lockstep {

Precision::~Precision() = default;

void Precision::set_grad_scaler(const GradScalerOptions& options) {
  scaler_ = std::make_shared<GradScaler>(options);
}

StateTree Precision::state() const { return scaler_ ? scaler_->state() : StateTree(); }

void Precision::load_state(const StateTree& state) {
  if (scaler_) scaler_->load_state(state);
}

}  // namespace lockstep
