// A model of a golden case, and what it records while it trains.
#pragma once

#include "data.h"

namespace parity {

/// What one rank saw; becomes result.json.
struct Record {
  std::vector<double> losses;
  std::vector<std::vector<double>> lrs_per_group;  // [group of the case][step]
  std::vector<double> grad_norms;
  std::vector<std::int64_t> batch_sizes;  // of epoch 0
  std::vector<std::vector<std::int64_t>> first_batches;
  std::vector<double> val_loss;
  std::vector<double> val_accuracy;
};

/// Training, validation and evaluation are the same for all models; each has its forward pass.
class GoldenModule : public ls::Module<Rows> {
 public:
  GoldenModule(const Case& golden, Record& record) : golden_(golden), record_(record) {}

  torch::Tensor training_step(const Rows& batch, ls::StepContext& step) override;
  void validation_step(const Rows& batch, ls::StepContext& step) override;
  void test_step(const Rows& batch, ls::StepContext& step) override;
  void on_before_optimizer_step(ls::StepContext& step) override;
  void on_validation_end(ls::TrainContext& context) override;
  ls::Optimizers configure_optimizers() override { return golden_.optimizers(); }

 protected:
  virtual torch::Tensor forward(torch::Tensor x) = 0;
  const nlohmann::json& model() const { return golden_.json.at("model"); }

 private:
  void evaluate(const Rows& batch, ls::StepContext& step, const std::string& prefix);

  const Case& golden_;
  Record& record_;
};

}  // namespace parity
