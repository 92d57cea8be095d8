// Hooks on backward passes and on tensors that are saved for them.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/parallel/dispatch/engine_hooks.h>
#include <lockstep/torch.h>
#include <torch/csrc/autograd/engine.h>

#include "parallel/dispatch/backward_thread.h"
#include "parallel/dispatch/operator_dispatch.h"

namespace lockstep::detail {

TensorPlace::TensorPlace(const at::Tensor& tensor)
    : sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      offset(tensor.storage_offset()),
      dtype(tensor.scalar_type()) {}

at::Tensor TensorPlace::in(const c10::Storage& memory) const {
  return at::empty({0}, at::TensorOptions(memory.device()).dtype(dtype)).set_(memory, offset, sizes, strides);
}

namespace {

std::shared_ptr<SavedTensorStore>& store_of_thread() {
  thread_local std::shared_ptr<SavedTensorStore> store;
  return store;
}

}  // namespace

const std::shared_ptr<SavedTensorStore>& saved_tensor_store() { return store_of_thread(); }

void set_saved_tensor_store(const std::shared_ptr<SavedTensorStore>& store) {
  auto& current = store_of_thread();
  if (current != store) current = store;
}

SavedTensor keep(const at::Tensor& tensor) {
  const auto& store = store_of_thread();
  return store ? store->keep(tensor) : SavedTensor(tensor);
}

}  // namespace lockstep::detail

namespace lockstep {
namespace {

using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::variable_list;

// The observers with which an outermost backward began, of which the first `begun` were notified. Observers
// that are added meanwhile wait for the next backward; removed ones are not notified any more.
class ObservedBackward {
 public:
  ObservedBackward(const std::vector<BackwardObserver*>& observers, const BackwardCall& call)
      : present_(observers), observers_(observers) {
    try {
      for (auto* observer : observers_) {
        if (is_present(observer)) observer->on_backward_begin(call);
        ++begun_;
      }
    } catch (...) {
      fail();
      throw;
    }
  }

  void succeed() {
    try {
      while (begun_ > 0) end_last(BackwardEnd::kDone);
    } catch (...) {
      fail();
      throw;
    }
  }

  void fail() noexcept {
    while (begun_ > 0) {
      try {
        end_last(BackwardEnd::kFailed);
      } catch (const std::exception& error) {
        log_warning(std::string("an observer failed after a backward that failed: ") + error.what());
      } catch (...) {
        log_warning("an observer failed after a backward that failed");
      }
    }
  }

 private:
  bool is_present(const BackwardObserver* observer) const {
    return std::ranges::count(present_, observer) > 0;
  }

  void end_last(BackwardEnd end) {
    auto* const observer = observers_[--begun_];
    if (is_present(observer)) observer->on_backward_end(end);
  }

  const std::vector<BackwardObserver*>& present_;
  const std::vector<BackwardObserver*> observers_;
  std::size_t begun_ = 0;
};

struct Depth {
  explicit Depth(int& of) : depth(of) { ++depth; }
  ~Depth() { --depth; }
  int& depth;
};

class HookEngine final : public Engine {
 public:
  ~HookEngine() override { stop(); }

  variable_list execute(const edge_list& roots, const variable_list& inputs, bool keep_graph,
                        bool create_graph, bool accumulate_grad, const edge_list& outputs) override {
    const auto run = [&] {
      return Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
    };
    detail::set_operator_recorder(nullptr);
    detail::set_saved_tensor_store(nullptr);
    auto& thread = *detail::backward_thread();
    const Depth depth(thread.depth);
    if (thread.depth > 1 || thread.observers.empty()) return run();
    return observed(thread, {.roots = roots, .inputs = outputs, .accumulates = accumulate_grad}, run);
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return detail::hooks_of_next_saved_tensor();
  }

  static bool has_started_threads(Engine& engine) {
    return !(engine.*(&HookEngine::device_ready_queues_)).empty();
  }

 private:
  template <class Run>
  static variable_list observed(detail::BackwardThread& thread, const BackwardCall& call, const Run& run) {
    ObservedBackward backward(thread.observers, call);
    variable_list gradients;
    try {
      gradients = run();
    } catch (...) {
      backward.fail();
      throw;
    }
    backward.succeed();
    return gradients;
  }
};

// Never destroyed: threads that are still in backward when the process exits would use it.
Engine& hook_engine() {
  static auto* engine = new HookEngine;
  return *engine;
}

void check(bool is_possible, const char* got, const char* hint) {
  if (is_possible) return;
  throw ConfigError("parallel", {.what = "autograd cannot be followed: it is too late to replace its engine",
                                 .expected = "LibTorch's own engine, not in use yet",
                                 .got = got,
                                 .hint = hint});
}

bool install() {
  auto& base = Engine::get_base_engine();
  check(&Engine::get_default_engine() == &base, "another engine, such as that of Python's torch",
        "a process that trains with lockstep must not load Python's torch");
  check(!detail::in_backward(), "a backward that is running",
        "call install_autograd_engine() before the first backward");
  check(!HookEngine::has_started_threads(base), "threads of an earlier backward",
        "call install_autograd_engine() before the first backward");
  torch::autograd::set_default_engine_stub(&hook_engine);
  return true;
}

}  // namespace

void install_autograd_engine() {
  static const bool is_installed = install();
  check(is_installed && &Engine::get_default_engine() == &hook_engine(),
        "another engine, put in place of ours, such as that of Python's torch",
        "a process that trains with lockstep must not load Python's torch");
}

ScopedBackwardObserver::ScopedBackwardObserver(BackwardObserver& observer)
    : observer_(&observer), thread_(detail::backward_thread()) {
  install_autograd_engine();
  thread_->observers.push_back(observer_);
}

ScopedBackwardObserver::~ScopedBackwardObserver() { std::erase(thread_->observers, observer_); }

namespace {

using SharedHooks = std::shared_ptr<const SavedTensorHooks>;

std::vector<SharedHooks>& open_scopes() {
  thread_local std::vector<SharedHooks> scopes;
  return scopes;
}

// Stands in the graph for one saved tensor, which user hooks have packed.
class PackedTensor final : public torch::autograd::SavedVariableHooks {
 public:
  explicit PackedTensor(SharedHooks hooks) : hooks_(std::move(hooks)) {}
  void call_pack_hook(const at::Tensor& tensor) override { packed_ = hooks_->pack(tensor); }
  at::Tensor call_unpack_hook() override { return hooks_->unpack(packed_); }

 private:
  SharedHooks hooks_;
  std::any packed_;
};

// Stands in the graph for a tensor in this thread's SavedTensorStore.
class StoredForBackward final : public torch::autograd::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override { kept_ = detail::keep(tensor); }
  at::Tensor call_unpack_hook() override { return kept_.get(); }

 private:
  detail::SavedTensor kept_;
};

}  // namespace

std::unique_ptr<torch::autograd::SavedVariableHooks> detail::hooks_of_next_saved_tensor() {
  const auto& scopes = open_scopes();
  if (!scopes.empty()) return std::make_unique<PackedTensor>(scopes.back());
  if (const auto& recorder = operator_recorder()) {
    if (auto hooks = recorder->hooks_of_saved_tensor()) return hooks;
  }
  return saved_tensor_store() ? std::make_unique<StoredForBackward>() : nullptr;
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
