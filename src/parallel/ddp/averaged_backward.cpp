#include "parallel/ddp/averaged_backward.h"

#include <lockstep/torch.h>
#include <torch/csrc/autograd/engine.h>

namespace lockstep::detail {

AveragedBackward::~AveragedBackward() {
  if (follows_) loss_.remove_hook(hook_);
  for (auto* reducer : reducers_) reducer->end_backward();
}

void AveragedBackward::add(BucketReducer& reducer, int divisor) {
  reducer.prepare_backward(loss_, divisor, reducers_.empty() ? nullptr : reducers_.back());
  reducers_.push_back(&reducer);
}

// What is asked of the engine at the start of the graph comes first at its end: before any Reducer waits.
void AveragedBackward::follow() {
  if (reducers_.empty()) return;
  hook_ = loss_.register_hook([this](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] { complete(); });
  });
  follows_ = true;
}

void AveragedBackward::complete() {
  for (auto* reducer : reducers_) reducer->complete_backward();
}

}  // namespace lockstep::detail
