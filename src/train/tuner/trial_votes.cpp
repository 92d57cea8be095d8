#include "train/tuner/trial_votes.h"

#include <lockstep/torch.h>

namespace lockstep::detail {

void vote(const Communicator& communicator, bool out_of_memory) {
  if (communicator.size() == 1) return;
  const auto votes = torch::full({1}, out_of_memory ? 1 : 0, torch::kInt);
  communicator.all_reduce(votes, ReduceOp::kMax);
  if (!out_of_memory && votes.item<int>() != 0) throw OutOfMemoryElsewhere();
}

void TrialStrategy::backward(const at::Tensor& loss, std::span<torch::nn::Module* const>,
                             const BackwardOptions& options) {
  strategy_->backward(loss, {}, options);
  vote(communicator(), false);
}

}  // namespace lockstep::detail
