#include "train/tuner/trial_votes.h"

#include <algorithm>
#include <array>
#include <new>
#include <string_view>

#include <c10/util/Exception.h>

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

namespace {

// Most allocators report failures only by text; only CUDA's has an exception class.
constexpr std::array<std::string_view, 4> kTexts{
    "out of memory", "DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"};

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const std::string_view text = error.what();
  return std::ranges::any_of(kTexts, [&](auto part) { return text.find(part) != text.npos; });
}

}  // namespace lockstep::detail
