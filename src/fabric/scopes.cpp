#include <lockstep/fabric/scopes.h>

#include "fabric/fabric_state.h"

namespace lockstep {

NoBackwardSync::NoBackwardSync(std::shared_ptr<detail::FabricModule> module) : module_(std::move(module)) {
  if (module_) ++module_->open_scopes;
}

NoBackwardSync::~NoBackwardSync() {
  if (module_) --module_->open_scopes;
}

}  // namespace lockstep
