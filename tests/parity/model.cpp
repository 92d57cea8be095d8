#include "model.h"

namespace parity {

RowsDataset::RowsDataset(const Case& golden) {
  const auto& data = golden.json.at("data");
  const auto all = ls::safetensors_dataset(golden.data_file(), {.x = data.at("x"), .y = data.at("y")});
  std::vector<std::int64_t> rows(data.at("rows").get<std::size_t>());
  std::iota(rows.begin(), rows.end(), 0);
  const auto example = all->get_batch(rows);
  x_ = example.data;
  y_ = example.target;
}

Rows RowsDataset::get_batch(std::span<const std::int64_t> indices) const {
  const auto index = torch::tensor(at::ArrayRef<std::int64_t>(indices.data(), indices.size()));
  return {x_.index_select(0, index), y_.index_select(0, index), {indices.begin(), indices.end()}};
}

MlpImpl::MlpImpl(const Case& golden, Record& record) : golden_(golden), record_(record) {
  const auto sizes = golden.json.at("model").at("layers").get<std::vector<std::int64_t>>();
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    // Numbered as in a PyTorch Sequential, where activations count too.
    layers_.push_back(register_module(std::to_string(2 * i), torch::nn::Linear(sizes[i], sizes[i + 1])));
  }
}

torch::Tensor MlpImpl::forward(torch::Tensor x) {
  const bool relu = golden_.json.at("model").at("activation") == "relu";
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    x = layers_[i]->forward(x);
    if (i + 1 < layers_.size()) x = relu ? torch::relu(x) : torch::tanh(x);
  }
  return x;
}

torch::Tensor MlpImpl::training_step(const Rows& batch, ls::StepContext& step) {
  const auto loss = torch::nn::functional::cross_entropy(forward(batch.x), batch.y);
  record_.losses.push_back(loss.item<double>());
  if (step.current_epoch() == 0) record_.batch_sizes.push_back(batch_size(batch));
  if (record_.first_batches.size() < 3) record_.first_batches.push_back(batch.indices);
  return loss;
}

void MlpImpl::on_before_optimizer_step(ls::StepContext& step) {
  record_.lrs.push_back(step.optimizer().groups().at(0).lr);
  record_.grad_norms.push_back(ls::grad_norm(step.module().parameters()));
}

void MlpImpl::test_step(const Rows& batch, ls::StepContext& step) {
  const auto logits = forward(batch.x);
  step.log("eval_loss", torch::nn::functional::cross_entropy(logits, batch.y), {.sync_dist = true});
  step.log("eval_correct", logits.argmax(1).eq(batch.y).sum(),
           {.reduce_fx = ls::ReduceFx::kSum, .sync_dist = true});
}

}  // namespace parity
