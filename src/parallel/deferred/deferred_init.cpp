#include <lockstep/parallel/deferred_init.h>

#include <lockstep/torch.h>

#include "parallel/deferred/deferred_operators.h"
#include "parallel/dispatch/use_key.h"
#include "parallel/module_states.h"

namespace lockstep {

// With the key included, operators that make tensors come to us as well.
DeferredInit::DeferredInit()
    : was_deferring_(detail::is_deferring()),
      was_included_(c10::impl::tls_is_dispatch_key_included(detail::use_key())) {
  c10::impl::tls_set_dispatch_key_included(detail::use_key(), true);
  detail::is_deferring() = true;
}

DeferredInit::~DeferredInit() {
  detail::is_deferring() = was_deferring_;
  c10::impl::tls_set_dispatch_key_included(detail::use_key(), was_included_);
}

void materialize_module(const torch::nn::Module& module) {
  detail::materialize_states(detail::ModuleStates(module));
}

}  // namespace lockstep
