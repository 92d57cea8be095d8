#include <lockstep/fabric/scopes.h>

#include "fabric/fabric_state.h"

namespace lockstep {

NoBackwardSync::NoBackwardSync(std::shared_ptr<detail::FabricModule> module) : module_(std::move(module)) {
  if (module_) ++module_->open_scopes;
}

NoBackwardSync::~NoBackwardSync() {
  if (module_) --module_->open_scopes;
}

InitScope::InitScope() : previous_(c10::get_default_dtype_as_scalartype()) {
  torch::set_default_dtype(caffe2::TypeMeta::fromScalarType(at::kFloat));
}

InitScope::~InitScope() { torch::set_default_dtype(caffe2::TypeMeta::fromScalarType(previous_)); }

}  // namespace lockstep
