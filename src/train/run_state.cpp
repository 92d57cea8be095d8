#include "train/run_state.h"

#include <lockstep/base/rank_status.h>
#include <lockstep/torch.h>

namespace lockstep::detail {

ShardSpec RunState::shard(bool pad) const {
  const bool is_shared = options.use_distributed_sampler;
  return {.num_replicas = is_shared ? communicator().size() : 1,
          .rank = is_shared ? communicator().rank() : 0,
          .pad = pad,
          .seed = options.run.seed_everything.value_or(0),
          .in_order = !options.overfit_batches.is_zero()};
}

TensorChange RunState::input_conversion() const {
  if (!precision->converts_inputs()) return {};
  return [precision = precision](const at::Tensor& input) { return precision->convert_input(input); };
}

void RunState::count_optimizer_step() {
  ++progress.global_step;
  rank_status().optimizer_step.store(static_cast<std::uint64_t>(progress.global_step),
                                     std::memory_order_relaxed);
}

double RunState::mean_over_ranks(double value) const {
  if (communicator().size() == 1) return value;
  const auto mean = torch::full({1}, value, torch::kDouble);
  communicator().all_reduce(mean, ReduceOp::kAvg);
  return mean.item<double>();
}

void RunState::write_metrics(const MetricRow& row, std::int64_t step) {
  for (const auto& logger : loggers) logger->log_metrics(row, progress.epoch, step);
}

}  // namespace lockstep::detail
