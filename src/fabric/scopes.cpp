#include <lockstep/fabric/scopes.h>

#include "strategy/trained_modules.h"

namespace lockstep {

NoBackwardSync::NoBackwardSync(std::shared_ptr<detail::TrainedModule> module) : module_(std::move(module)) {
  if (module_) ++module_->local_scopes;
}

NoBackwardSync::~NoBackwardSync() {
  if (module_) --module_->local_scopes;
}

}  // namespace lockstep
