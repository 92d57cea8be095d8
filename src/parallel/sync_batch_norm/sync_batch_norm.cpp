#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/parallel/dispatch/engine_hooks.h>
#include <lockstep/parallel/dispatch/tensor_mark.h>
#include <lockstep/parallel/sync_batch_norm.h>
#include <lockstep/torch.h>

#include "parallel/dispatch/operator_dispatch.h"
#include "parallel/sync_batch_norm/synced_normalize.h"

namespace lockstep::detail {
namespace {

// What `module` hands to aten::batch_norm as its running mean; null unless it is a BatchNorm1d, BatchNorm2d
// or BatchNorm3d.
at::Tensor* running_mean_of(torch::nn::Module& module);

// Marks the running mean of a BatchNorm module. One without running statistics gets a placeholder to hand
// over, which is not registered and so no part of its state.
class BatchNormLayer {
 public:
  /// `tag` is that of the mark.
  BatchNormLayer(std::string name, const std::shared_ptr<torch::nn::Module>& module, UseHandler& handler,
                 std::size_t tag);
  /// The module is what it was.
  ~BatchNormLayer();
  BatchNormLayer(const BatchNormLayer&) = delete;
  BatchNormLayer& operator=(const BatchNormLayer&) = delete;

  const std::string& name() const { return name_; }
  /// Whether `running_mean` is what the module hands over.
  bool hands_over(const at::Tensor& running_mean) const { return running_mean.is_same(mark_.tensor()); }
  /// Whether that is a placeholder, of which the operator must not know.
  bool has_placeholder() const { return has_placeholder_; }
  /// Whether the module is there and in training mode.
  bool is_training() const;
  /// Whether its calls are recognised; true as well when the module is gone.
  bool is_intact() const;

 private:
  std::string name_;
  std::weak_ptr<torch::nn::Module> module_;
  bool has_placeholder_;
  TensorMark mark_;
};

template <class Holder>
at::Tensor* running_mean_as(torch::nn::Module& module) {
  auto* const norm = module.as<Holder>();
  return norm ? &norm->running_mean : nullptr;
}

const at::Tensor& tensor_to_mark(torch::nn::Module& module) {
  auto& running_mean = *running_mean_of(module);
  if (!running_mean.defined()) running_mean = at::empty({0});
  return running_mean;
}

at::Tensor* running_mean_of(torch::nn::Module& module) {
  if (auto* found = running_mean_as<torch::nn::BatchNorm1d>(module)) return found;
  if (auto* found = running_mean_as<torch::nn::BatchNorm2d>(module)) return found;
  return running_mean_as<torch::nn::BatchNorm3d>(module);
}

BatchNormLayer::BatchNormLayer(std::string name, const std::shared_ptr<torch::nn::Module>& module,
                               UseHandler& handler, std::size_t tag)
    : name_(std::move(name)),
      module_(module),
      has_placeholder_(!running_mean_of(*module)->defined()),
      mark_(tensor_to_mark(*module), handler, tag) {}

BatchNormLayer::~BatchNormLayer() {
  const auto module = module_.lock();
  if (!module || !has_placeholder_) return;
  auto& running_mean = *running_mean_of(*module);
  if (hands_over(running_mean)) running_mean = at::Tensor();
}

bool BatchNormLayer::is_training() const {
  const auto module = module_.lock();
  return module && module->is_training();
}

bool BatchNormLayer::is_intact() const {
  const auto module = module_.lock();
  return !module || (mark_.is_intact() && hands_over(*running_mean_of(*module)));
}

}  // namespace
}  // namespace lockstep::detail

namespace lockstep {
namespace {

using detail::BatchNormLayer;

// Where the arguments of aten::batch_norm stand.
constexpr std::size_t kInput = 0, kWeight = 1, kBias = 2, kRunningMean = 3, kRunningVar = 4, kTraining = 5,
                      kMomentum = 6, kEpsilon = 7;

at::Tensor tensor_of(const c10::IValue& argument) {
  return argument.isTensor() ? argument.toTensor() : at::Tensor();
}

detail::BatchNormCall batch_norm_call(std::span<const c10::IValue> arguments) {
  return {.input = arguments[kInput].toTensor(),
          .weight = tensor_of(arguments[kWeight]),
          .bias = tensor_of(arguments[kBias]),
          .running_mean = tensor_of(arguments[kRunningMean]),
          .running_var = tensor_of(arguments[kRunningVar]),
          .momentum = arguments[kMomentum].toDouble(),
          .epsilon = arguments[kEpsilon].toDouble()};
}

struct NamedModule {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
};

std::shared_ptr<torch::nn::Module> shared(torch::nn::Module& root) {
  if (auto module = root.weak_from_this().lock()) return module;
  throw ConfigError("parallel", {.what = "SyncBatchNorm of " + root.name() + " alone",
                                 .expected = "a module owned by a std::shared_ptr",
                                 .got = "one that is not"});
}

// Each once, under its first name.
std::vector<NamedModule> batch_norms_in(torch::nn::Module& root) {
  std::vector<NamedModule> found;
  const auto add = [&](const std::string& name, const std::shared_ptr<torch::nn::Module>& module) {
    const bool is_known = std::ranges::find(found, module, &NamedModule::module) != found.end();
    if (!is_known && detail::running_mean_of(*module)) found.push_back({name, module});
  };
  if (detail::running_mean_of(root)) add(root.name(), shared(root));
  for (const auto& item : root.named_modules("", /*include_self=*/false)) add(item.key(), item.value());
  return found;
}

}  // namespace

class SyncBatchNorm::Impl final : public UseHandler, private BackwardObserver {
 public:
  Impl(torch::nn::Module& module, Communicator comm) : comm_(std::move(comm)) {
    for (const auto& [name, layer] : batch_norms_in(module)) {
      refuse_if_synchronised(name, *detail::running_mean_of(*layer));
      layers_.emplace_back(name, layer, *this, layers_.size());
    }
    if (!layers_.empty()) observer_.emplace(static_cast<BackwardObserver&>(*this));
  }

  std::size_t size() const { return layers_.size(); }

  void check() const {
    const auto lost = std::ranges::find_if_not(layers_, &BatchNormLayer::is_intact);
    if (lost == layers_.end()) return;
    throw ConfigError("parallel", {.what = "layer " + lost->name() + " is no longer synchronised",
                                   .expected = "the running_mean that it had when SyncBatchNorm was made",
                                   .got = "one that was converted, loaded in place of it, or assigned",
                                   .hint = "make SyncBatchNorm once the model has its dtype and weights"});
  }

  void before_use(OperatorCall& call, std::span<const TensorUse> uses) override {
    const auto* layer = layer_called(call, uses);
    if (layer && layer->has_placeholder()) call.arguments()[kRunningMean] = c10::IValue();
  }

  void replace(OperatorCall& call, std::span<const TensorUse> uses) override {
    const auto* layer = layer_called(call, uses);
    if (!layer || !layer->is_training() || !call.arguments()[kTraining].toBool()) return;
    call.set_results({detail::synced_normalize(batch_norm_call(call.arguments()), comm_, layer->name())});
  }

 private:
  // A layer whose placeholder was taken out of the arguments is still among the uses; nobody else has it.
  const BatchNormLayer* layer_called(OperatorCall& call, std::span<const TensorUse> uses) const {
    if (call.name() != "aten::batch_norm") return nullptr;
    const auto running_mean = tensor_of(call.arguments()[kRunningMean]);
    for (const auto& use : uses) {
      const auto& layer = layers_[use.mark->tag()];
      if (layer.has_placeholder() || layer.hands_over(running_mean)) return &layer;
    }
    return nullptr;
  }

  static void refuse_if_synchronised(const std::string& name, const at::Tensor& running_mean) {
    if (!running_mean.defined()) return;
    detail::TensorUses marks;
    detail::mark_table().find(running_mean.storage().unsafeGetStorageImpl(), false, marks);
    const bool is_ours = std::ranges::any_of(marks, [&](const TensorUse& use) {
      return use.mark->tensor().is_same(running_mean) && dynamic_cast<Impl*>(&use.mark->handler());
    });
    if (is_ours) {
      throw ConfigError("parallel", {.what = "layer " + name + " is synchronised by another SyncBatchNorm",
                                     .expected = "one that has ended, or was not there"});
    }
  }

  void on_backward_begin(const BackwardCall&) override { check(); }
  void on_backward_end(BackwardEnd) override {}

  Communicator comm_;
  std::deque<BatchNormLayer> layers_;
  std::optional<ScopedBackwardObserver> observer_;
};

SyncBatchNorm::SyncBatchNorm(torch::nn::Module& module, Communicator comm)
    : impl_(comm.size() > 1 ? std::make_unique<Impl>(module, std::move(comm)) : nullptr) {}

SyncBatchNorm::~SyncBatchNorm() = default;
SyncBatchNorm::SyncBatchNorm(SyncBatchNorm&&) noexcept = default;
SyncBatchNorm& SyncBatchNorm::operator=(SyncBatchNorm&&) noexcept = default;

std::size_t SyncBatchNorm::size() const { return impl_ ? impl_->size() : 0; }

void SyncBatchNorm::check() const {
  if (impl_) impl_->check();
}

}  // namespace lockstep
