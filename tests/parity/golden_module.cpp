#include "golden_module.h"

namespace parity {
namespace {

// Over the classes, in float32, whatever the shape of the batch.
torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& targets) {
  return torch::nn::functional::cross_entropy(logits.to(torch::kFloat).flatten(0, -2), targets.flatten());
}

}  // namespace

torch::Tensor GoldenModule::training_step(const Rows& batch, ls::StepContext& step) {
  const auto logits = forward(batch.x);
  golden_.check_logits(logits);
  const auto loss = loss_of(logits, batch.y);
  record_.losses.push_back(loss.item<double>());
  if (step.current_epoch() == 0) record_.batch_sizes.push_back(batch_size(batch));
  if (record_.first_batches.size() < 3) record_.first_batches.push_back(batch.indices);
  return loss;
}

void GoldenModule::on_before_optimizer_step(ls::StepContext& step) {
  const auto firsts = golden_.first_group_of_each();
  record_.lrs_per_group.resize(firsts.size());
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    record_.lrs_per_group[i].push_back(step.optimizer().groups().at(firsts[i]).lr);
  }
  record_.grad_norms.push_back(ls::grad_norm(step));
}

void GoldenModule::evaluate(const Rows& batch, ls::StepContext& step, const std::string& prefix) {
  const auto logits = forward(batch.x);
  const auto correct = logits.argmax(-1).eq(batch.y);
  step.log(prefix + "_loss", loss_of(logits, batch.y), {.sync_dist = true});
  step.log(prefix + "_correct", correct.sum(), {.reduce_fx = ls::ReduceFx::kSum, .sync_dist = true});
  step.log(prefix + "_predictions", static_cast<double>(correct.numel()),
           {.reduce_fx = ls::ReduceFx::kSum, .sync_dist = true});
}

void GoldenModule::validation_step(const Rows& batch, ls::StepContext& step) { evaluate(batch, step, "val"); }

void GoldenModule::test_step(const Rows& batch, ls::StepContext& step) { evaluate(batch, step, "eval"); }

void GoldenModule::on_validation_end(ls::TrainContext& context) {
  const auto& metrics = context.callback_metrics();
  record_.val_loss.push_back(metrics.at("val_loss"));
  record_.val_accuracy.push_back(metrics.at("val_correct") / metrics.at("val_predictions"));
}

}  // namespace parity
