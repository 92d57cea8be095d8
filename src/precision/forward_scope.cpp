#include <lockstep/precision/forward_scope.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>

#include <lockstep/device/torch_device.h>

namespace lockstep {
namespace {

namespace autocast = at::autocast;

// The scopes that are open, in the order in which they were opened: as global as what they change.
struct OpenScopes {
  struct Scope {
    const DefaultDtypeScope* address;
    at::ScalarType dtype;
  };

  std::mutex mutex;
  at::ScalarType before = at::kFloat;  // the first one
  std::vector<Scope> scopes;
};

OpenScopes& open_scopes() {
  static OpenScopes scopes;
  return scopes;
}

void set_default(at::ScalarType dtype) { c10::set_default_dtype(caffe2::TypeMeta::fromScalarType(dtype)); }

}  // namespace

DefaultDtypeScope::DefaultDtypeScope(at::ScalarType dtype) {
  auto& open = open_scopes();
  const std::lock_guard lock(open.mutex);
  if (open.scopes.empty()) open.before = c10::get_default_dtype_as_scalartype();
  open.scopes.push_back({this, dtype});
  set_default(dtype);
}

DefaultDtypeScope::~DefaultDtypeScope() {
  auto& open = open_scopes();
  const std::lock_guard lock(open.mutex);
  std::erase_if(open.scopes, [this](const auto& scope) { return scope.address == this; });
  set_default(open.scopes.empty() ? open.before : open.scopes.back().dtype);
}

ForwardScope::ForwardScope(at::ScalarType autocast_dtype)
    : ForwardScope(autocast_dtype, device_in_use().type()) {}

ForwardScope::ForwardScope(at::ScalarType autocast_dtype, c10::DeviceType type)
    : previous_({.type = type,
                 .enabled = autocast::is_autocast_enabled(type),
                 .cache_enabled = autocast::is_autocast_cache_enabled(),
                 .dtype = autocast::get_autocast_dtype(type)}) {
  autocast::set_autocast_dtype(type, autocast_dtype);
  autocast::set_autocast_enabled(type, true);
  autocast::set_autocast_cache_enabled(true);
  autocast::increment_nesting();
}

ForwardScope ForwardScope::of_new_tensors(at::ScalarType dtype) { return ForwardScope(NewTensors{dtype}); }

ForwardScope::~ForwardScope() {
  if (!previous_) return;
  // torch.autocast keeps the casts of inner scopes. A user's scope around a whole run would then hand
  // those of a validation, which have no graph, to the training steps after it.
  autocast::decrement_nesting();
  autocast::clear_cache();
  autocast::set_autocast_cache_enabled(previous_->cache_enabled);
  autocast::set_autocast_enabled(previous_->type, previous_->enabled);
  autocast::set_autocast_dtype(previous_->type, previous_->dtype);
}

}  // namespace lockstep
