#include "parallel/sync_batch_norm/batch_norm_layer.h"

#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

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

}  // namespace

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

}  // namespace lockstep::detail
