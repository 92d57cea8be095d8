#include "parallel/activations/offloaded_activations.h"

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/parallel/dispatch/backward_observer.h>
#include <lockstep/torch.h>

#include "offload/offload_directory.h"
#include "parallel/dispatch/in_backward.h"

namespace lockstep {
namespace detail {
namespace {

offload::SwapFolder folder_of(const ActivationOffload& options, int rank) {
  if (options.min_bytes < 1)
    throw ConfigError("parallel", {.what = "min_bytes of offloaded activations",
                                   .expected = "1 or more",
                                   .got = std::to_string(options.min_bytes)});
  const auto directory =
      options.directory.empty() ? offload::temporary_directory(options.option) : options.directory;
  if (rank == 0) offload::warn_of_tmpfs(directory, options.option);
  return offload::SwapFolder({.directory = directory, .rank = rank, .option = options.option});
}

std::vector<at::Tensor> marked_tensors(const torch::nn::Module& module) {
  auto parameters = module.parameters();
  std::erase_if(parameters, [](const at::Tensor& tensor) { return !tensor.defined(); });
  if (!parameters.empty()) return parameters;
  throw ConfigError("parallel", {.what = "offloaded activations of " + module.name(),
                                 .expected = "a module with parameters: their uses tell when it runs",
                                 .got = "one without"});
}

}  // namespace

OffloadedActivations::OffloadedActivations(const torch::nn::Module& module, const ActivationOffload& options,
                                           int rank)
    : store_(std::make_shared<ActivationStore>(folder_of(options, rank), options.min_bytes)),
      parameters_(marked_tensors(module)) {
  install_autograd_engine();
  mark();
}

void OffloadedActivations::mark() {
  for (const auto& parameter : parameters_) marks_.push_back(std::make_unique<TensorMark>(parameter, *this));
}

void OffloadedActivations::mark_again() {
  if (std::ranges::all_of(marks_, [](const auto& mark) { return mark->is_intact(); })) return;
  marks_.clear();
  mark();
}

void OffloadedActivations::announce(std::span<const TensorUse>) {
  if (at::GradMode::is_enabled() && !in_backward()) set_tensor_keeper(store_);
}

}  // namespace detail

void offload_activations(const torch::nn::Module& module, const ActivationOffload& options) {
  detail::set_policy<detail::OffloadedActivations>(module, "offloaded activations", options, /*rank=*/0);
}

}  // namespace lockstep
