#include "train/callbacks/averaged_weights.h"

#include <algorithm>

#include <lockstep/train/callbacks/model_pruning.h>

#include "state/module_tensors.h"

namespace lockstep::detail {

void AveragedWeights::Tensors::add(const at::Tensor& weight) {
  weights.push_back(weight);
  averages.push_back(weight.detach().clone());
}

void AveragedWeights::Tensors::swap() const {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto average = averages[i].clone();
    averages[i].copy_(weights[i]);
    weights[i].copy_(average);
  }
}

AveragedWeights::AveragedWeights(const torch::nn::Module& module, bool averages_buffers) {
  const torch::NoGradGuard no_grad;
  add(module.named_parameters(), true);
  add(module.named_buffers(), averages_buffers);
  for (const auto& buffer : module.named_buffers())
    if (buffer.value().defined()) buffer_names_.push_back(buffer.key());
}

// A tensor with several names is averaged once.
void AveragedWeights::add(const torch::OrderedDict<std::string, at::Tensor>& named, bool averages) {
  for (const auto& item : named) {
    const auto& weight = item.value();
    if (!weight.defined()) continue;
    auto& tensors = averages && weight.is_floating_point() ? averaged_ : copied_;
    const auto known =
        std::ranges::find_if(tensors.weights, [&](const auto& w) { return w.is_same(weight); });
    const auto number = static_cast<std::size_t>(known - tensors.weights.begin());
    if (number == tensors.weights.size()) tensors.add(weight);
    module_.set(item.key(), weight);
    beside_.set(item.key(), tensors.averages[number]);
  }
}

void AveragedWeights::update(const AverageUpdate& average) {
  const torch::NoGradGuard no_grad;
  if (num_averaged_ == 0) {
    at::_foreach_copy_(averaged_.averages, averaged_.weights);
  } else {
    average(averaged_.averages, averaged_.weights, num_averaged_);
  }
  take_others();
  ++num_averaged_;
}

void AveragedWeights::take_others() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < copied_.weights.size(); ++i) copied_.averages[i].copy_(copied_.weights[i]);
}

void AveragedWeights::prune(const TrainContext& context) const {
  const torch::NoGradGuard no_grad;
  const auto averages = this->averages();
  for (const auto& callback : context.callbacks()) {
    const auto* pruning = dynamic_cast<const ModelPruning*>(callback.get());
    if (pruning == nullptr) continue;
    // A product would be -0 of negative averages, and the bits those of when checkpoints were taken.
    for (const auto& [name, mask] : pruning->masks())
      averages.get<at::Tensor>(name).masked_fill_(mask == 0, 0);
  }
}

void AveragedWeights::swap() {
  const torch::NoGradGuard no_grad;
  averaged_.swap();
  copied_.swap();
  is_swapped_ = !is_swapped_;
}

// Optimizers may move a parameter to other memory, so the tensor is stored, not its memory.
StateTree AveragedWeights::in_module() const {
  return module_.with_tensors([](const at::Tensor& tensor) { return tensor.detach(); });
}

StateTree AveragedWeights::buffers_of(const StateTree& all) const {
  StateTree buffers;
  for (const auto& name : buffer_names_) buffers.set(name, all.get<at::Tensor>(name));
  return buffers;
}

void AveragedWeights::set_buffers(const StateTree& buffers) const {
  const auto module = in_module();
  for (const auto& entry : buffers.entries())
    copy_as_loaded(buffers, entry.name, module.get<at::Tensor>(entry.name));
}

void AveragedWeights::load_averages(const StateTree& averages, const StateTree& buffers,
                                    std::int64_t num_averaged) {
  for (const auto& entry : beside_.entries()) {
    const auto& source = buffers.contains(entry.name) ? buffers : averages;
    copy_as_loaded(source, entry.name, beside_.get<at::Tensor>(entry.name));
  }
  num_averaged_ = num_averaged;
}

}  // namespace lockstep::detail
