// TrainContext::update_bn(): running statistics of BatchNorm layers for weights that no batch was trained
// with.
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/state/module_state.h>
#include <lockstep/torch.h>

#include "train/callbacks/batch_norm_view.h"
#include "train/data/data_place.h"
#include "train/logging/run_log.h"
#include "train/loops/batch_step.h"
#include "train/loops/trainer_state.h"

namespace lockstep {
namespace detail {
namespace {

std::vector<BatchNormView> layers_in_training(torch::nn::Module& module) {
  std::vector<BatchNormView> layers;
  for (const auto& part : module.modules()) {
    const auto layer = batch_norm_view(*part);
    if (layer && part->is_training() && layer->keeps_statistics()) layers.push_back(*layer);
  }
  return layers;
}

// A BatchNorm layer without a momentum takes the mean of all batches since it was reset.
class PlainMeans {
 public:
  explicit PlainMeans(const std::vector<BatchNormView>& layers) : layers_(layers) {
    for (const auto& layer : layers_) {
      momenta_.push_back(layer.options->momentum());
      layer.options->momentum(std::nullopt);
      layer.running_mean->zero_();
      layer.running_var->fill_(1);
      layer.num_batches_tracked->zero_();
    }
  }
  ~PlainMeans() {
    for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i].options->momentum(momenta_[i]);
  }
  PlainMeans(const PlainMeans&) = delete;
  PlainMeans& operator=(const PlainMeans&) = delete;

 private:
  const std::vector<BatchNormView>& layers_;
  std::vector<std::optional<double>> momenta_;
};

// Discards what training_step logs, and restores the metric objects that it updates.
class UnheardLog {
 public:
  explicit UnheardLog(RunLog& log) : scope_(log, log_, kTrainStepLog) {
    for (const auto& logged : log.train.metrics()) kept_.emplace_back(logged.metric, logged.metric->state());
  }
  void set_batch_size(std::int64_t samples) { log_.set_batch_size(samples); }
  void put_metrics_back() {
    log_.reset();
    for (const auto& [metric, own] : kept_) metric->load_state(own);
  }

 private:
  MetricBoard board_;
  MetricLog log_{board_};
  LogScopeGuard scope_;
  std::vector<std::pair<metrics::Metric*, StateTree>> kept_;
};

void run_forward(TrainerState& state) {
  UnheardLog log(state.log);
  const auto num_batches = num_training_batches(state.setup, state.data);
  const auto stream =
      with_tensors(state.data.train->stream(state.setup.shard(/*pad=*/true), state.progress.epoch, 0),
                   state.setup.input_conversion());
  const StepMeasure measure(state.setup, state.data.module.get(), "training_step");
  AnyBatch batch;
  for (std::int64_t i = 0; i < num_batches && stream->next(batch); ++i) {
    StepContext step(state, i, batch);
    transfer(state.setup, measure, state.data.module.get(), batch, step);
    if (batch.empty()) continue;
    log.set_batch_size(batch.size());
    const auto forward = state.setup.precision->forward_scope();
    const torch::AutoGradMode with_gradients(true);  // which a step may need for its loss
    state.setup.module->any_training_step(batch, step);
  }
  log.put_metrics_back();
}

// All ranks have run the same number of batches, so that the plain mean is right.
void average_over_ranks(const Communicator& communicator, const std::vector<BatchNormView>& layers) {
  if (communicator.size() == 1) return;
  for (const auto& layer : layers) {
    for (const auto* statistics : {layer.running_mean, layer.running_var}) {
      const auto mean = statistics->clone();
      communicator.all_reduce(mean, ReduceOp::kAvg);
      statistics->copy_(mean);
    }
  }
}

}  // namespace

}  // namespace detail

using namespace detail;

void TrainContext::update_bn() {
  auto& state = *state_;
  const auto layers = layers_in_training(*state.setup.module);
  if (layers.empty()) return;
  if (!state.setup.module->automatic_optimization()) {
    throw ConfigError("train", {.what = "update_bn() with manual optimisation",
                                .expected = "a training_step that leaves stepping to the Trainer",
                                .got = "one that steps optimizers itself"});
  }
  const torch::NoGradGuard no_grad;
  const auto device = state.setup.strategy->root_device();
  const auto random = random_state(device);
  {
    const PlainMeans means(layers);
    run_forward(state);
  }
  load_random_state(random, device);
  average_over_ranks(state.setup.communicator(), layers);
}

}  // namespace lockstep
