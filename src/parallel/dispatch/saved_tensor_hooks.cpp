#include <lockstep/parallel/dispatch/saved_tensor_hooks.h>

#include <memory>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>

#include "parallel/dispatch/hook_engine.h"
#include "parallel/dispatch/operator_recorder.h"
#include "parallel/dispatch/tensor_keeper.h"

namespace lockstep {
namespace {

using SharedHooks = std::shared_ptr<const SavedTensorHooks>;

std::vector<SharedHooks>& open_scopes() {
  thread_local std::vector<SharedHooks> scopes;
  return scopes;
}

// Stands in the graph for one saved tensor.
class PackedTensor final : public torch::autograd::SavedVariableHooks {
 public:
  explicit PackedTensor(SharedHooks hooks) : hooks_(std::move(hooks)) {}
  void call_pack_hook(const at::Tensor& tensor) override { packed_ = hooks_->pack(tensor); }
  at::Tensor call_unpack_hook() override { return hooks_->unpack(packed_); }

 private:
  SharedHooks hooks_;
  std::any packed_;
};

// Stands there for one that this thread's keeper keeps.
class KeptForBackward final : public torch::autograd::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override { kept_ = detail::keep(tensor); }
  at::Tensor call_unpack_hook() override { return kept_.get(); }

 private:
  detail::KeptTensor kept_;
};

}  // namespace

std::unique_ptr<torch::autograd::SavedVariableHooks> detail::hooks_of_next_saved_tensor() {
  const auto& scopes = open_scopes();
  if (!scopes.empty()) return std::make_unique<PackedTensor>(scopes.back());
  if (const auto& recorder = operator_recorder()) {
    if (auto hooks = recorder->hooks_of_saved_tensor()) return hooks;
  }
  return tensor_keeper() ? std::make_unique<KeptForBackward>() : nullptr;
}

bool detail::has_saved_tensor_scope() { return !open_scopes().empty(); }

ScopedSavedTensorHooks::ScopedSavedTensorHooks(SavedTensorHooks hooks) {
  if (!hooks.pack || !hooks.unpack) {
    throw ConfigError("parallel", {.what = "ScopedSavedTensorHooks: a function is missing",
                                   .expected = "pack and unpack",
                                   .got = hooks.pack ? "no unpack" : "no pack"});
  }
  install_autograd_engine();
  open_scopes().push_back(std::make_shared<const SavedTensorHooks>(std::move(hooks)));
}

ScopedSavedTensorHooks::~ScopedSavedTensorHooks() { open_scopes().pop_back(); }

}  // namespace lockstep
