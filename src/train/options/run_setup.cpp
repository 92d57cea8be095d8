#include "train/options/run_setup.h"

#include <variant>

#include <lockstep/torch.h>

namespace lockstep::detail {

ShardSpec RunSetup::shard(bool pad) const {
  const bool is_shared = options.use_distributed_sampler;
  return {.num_replicas = is_shared ? communicator().size() : 1,
          .rank = is_shared ? communicator().rank() : 0,
          .pad = pad,
          .seed = options.run.seed_everything.value_or(0),
          .in_order = !options.overfit_batches.is_zero()};
}

TensorChange RunSetup::input_conversion() const {
  if (!precision->converts_inputs()) return {};
  return [precision = precision](const at::Tensor& input) { return precision->convert_input(input); };
}

double RunSetup::mean_over_ranks(double value) const {
  if (communicator().size() == 1) return value;
  const auto mean = torch::full({1}, value, torch::kDouble);
  communicator().all_reduce(mean, ReduceOp::kAvg);
  return mean.item<double>();
}

std::shared_ptr<CheckpointIO> own_checkpoint_io(const TrainerOptions& options) {
  for (const auto& plugin : options.plugins)
    if (const auto* own = std::get_if<std::shared_ptr<CheckpointIO>>(&plugin)) return *own;
  return nullptr;
}

}  // namespace lockstep::detail
