// The models of the golden cases, and what they record while they train.
#pragma once

#include "case.h"

namespace parity {

/// Rows of the data set, with their numbers.
struct Rows {
  at::Tensor x;
  at::Tensor y;
  std::vector<std::int64_t> indices;
};

inline std::int64_t batch_size(const Rows& rows) { return static_cast<std::int64_t>(rows.indices.size()); }

class RowsDataset final : public ls::Dataset<Rows> {
 public:
  explicit RowsDataset(const Case& golden);
  std::int64_t size() const override { return x_.size(0); }
  Rows get_batch(std::span<const std::int64_t> indices) const override;

 private:
  at::Tensor x_;
  at::Tensor y_;
};

/// What one rank saw; becomes result.json.
struct Record {
  std::vector<double> losses;
  std::vector<double> lrs;
  std::vector<double> grad_norms;
  std::vector<std::int64_t> batch_sizes;  // of epoch 0
  std::vector<std::vector<std::int64_t>> first_batches;
};

struct MlpImpl : ls::Module<Rows> {
  MlpImpl(const Case& golden, Record& record);
  torch::Tensor training_step(const Rows& batch, ls::StepContext& step) override;
  void on_before_optimizer_step(ls::StepContext& step) override;
  void test_step(const Rows& batch, ls::StepContext& step) override;
  ls::Optimizers configure_optimizers() override { return golden_.optimizers(); }

 private:
  torch::Tensor forward(torch::Tensor x);

  const Case& golden_;
  Record& record_;
  std::vector<torch::nn::Linear> layers_;
};
TORCH_MODULE(Mlp);

}  // namespace parity
