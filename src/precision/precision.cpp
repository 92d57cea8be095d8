#include <lockstep/precision/precision.h>

#include <ATen/autocast_mode.h>

namespace lockstep {

namespace autocast = at::autocast;

ForwardScope::ForwardScope(at::ScalarType autocast_dtype)
    : previous_({.enabled = autocast::is_autocast_enabled(at::kCPU),
                 .cache_enabled = autocast::is_autocast_cache_enabled(),
                 .dtype = autocast::get_autocast_dtype(at::kCPU)}) {
  autocast::set_autocast_dtype(at::kCPU, autocast_dtype);
  autocast::set_autocast_enabled(at::kCPU, true);
  autocast::set_autocast_cache_enabled(true);
  autocast::increment_nesting();
}

ForwardScope::~ForwardScope() {
  if (!previous_) return;
  // torch.autocast keeps the casts of inner scopes. A user's scope around a whole run would then hand
  // those of a validation, which have no graph, to the training steps after it.
  autocast::decrement_nesting();
  autocast::clear_cache();
  autocast::set_autocast_cache_enabled(previous_->cache_enabled);
  autocast::set_autocast_enabled(at::kCPU, previous_->enabled);
  autocast::set_autocast_dtype(at::kCPU, previous_->dtype);
}

Precision::~Precision() = default;

}  // namespace lockstep
