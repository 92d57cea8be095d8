// Models, batches and one-process references that the tests of SyncBatchNorm share.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <vector>

#include <lockstep/comm/communicator.h>

namespace lockstep {

/// Two BatchNorm modules with a nonlinearity between them.
struct NormCase {
  const char* name;
  std::vector<std::int64_t> shape;  ///< of a row of the batch: channels first
  bool is_affine = true;
  bool is_tracked = true;
  std::optional<double> momentum = 0.3;
};

template <class Norm>
void add_norm(torch::nn::Sequential& model, const NormCase& test) {
  model->push_back(Norm(torch::nn::BatchNormOptions(test.shape[0])
                            .affine(test.is_affine)
                            .track_running_stats(test.is_tracked)
                            .momentum(test.momentum)));
}

inline void add_norm(torch::nn::Sequential& model, const NormCase& test) {
  if (test.shape.size() <= 2) return add_norm<torch::nn::BatchNorm1d>(model, test);
  if (test.shape.size() == 3) return add_norm<torch::nn::BatchNorm2d>(model, test);
  add_norm<torch::nn::BatchNorm3d>(model, test);
}

inline torch::nn::Sequential norm_model(const NormCase& test, at::ScalarType dtype = at::kDouble) {
  torch::nn::Sequential model;
  add_norm(model, test);
  model->push_back(torch::nn::Tanh());
  add_norm(model, test);
  const at::NoGradGuard no_grad;
  double shift = 0;
  for (auto& parameter : model->parameters()) {
    parameter.copy_(at::linspace(0.5 + shift, 1.5 - shift, parameter.numel()));
    shift += 0.2;
  }
  model->to(dtype);
  return model;
}

/// `rows` rows whose mean and spread differ from row to row, so that those of every rank's share do.
inline at::Tensor norm_batch(std::int64_t rows, std::vector<std::int64_t> row_shape, double phase = 0,
                             at::ScalarType dtype = at::kDouble) {
  row_shape.insert(row_shape.begin(), rows);
  auto batch = at::empty(row_shape, at::kDouble);
  const auto count = static_cast<double>(batch.numel());
  batch.copy_((at::linspace(0, 0.9 * count, batch.numel(), at::kDouble) + phase).sin().view(row_shape));
  row_shape.assign(row_shape.size(), 1);
  row_shape[0] = rows;
  const auto row = at::arange(rows, at::kDouble).view(row_shape);
  return (batch * (1 + 0.3 * row) + 0.5 * row).to(dtype);
}

/// What one training pass leaves behind, with a loss that weighs every output differently.
struct NormPass {
  at::Tensor output = {}, input_gradient = {};
  std::vector<at::Tensor> gradients = {};  ///< of parameters
};

inline NormPass train_pass(torch::nn::Sequential& model, const at::Tensor& batch,
                           const at::Tensor& coefficients) {
  const auto input = batch.detach().clone().set_requires_grad(true);
  NormPass pass{.output = model->forward(input)};
  model->zero_grad();
  (pass.output * coefficients).sum().backward();
  pass.input_gradient = input.grad();
  for (const auto& parameter : model->parameters()) pass.gradients.push_back(parameter.grad().clone());
  return pass;
}

/// The rows of `whole` of this rank, where rank r has sizes[r] of them.
inline at::Tensor rows_of(const at::Tensor& whole, const std::vector<std::int64_t>& sizes,
                          const Communicator& comm) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  std::int64_t begin = 0;
  for (std::size_t other = 0; other < rank; ++other) begin += sizes[other];
  return whole.narrow(0, begin, sizes[rank]);
}

inline void expect_near(const at::Tensor& got, const at::Tensor& expected, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  ASSERT_EQ(got.scalar_type(), expected.scalar_type()) << what;
  if (got.numel() == 0) return;
  const auto worst = (got.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
  EXPECT_LE(worst, tolerance * std::max(1.0, expected.abs().max().item<double>())) << what;
}

inline void expect_same_buffers(const torch::nn::Module& got, const torch::nn::Module& expected,
                                double tolerance) {
  const auto all = expected.named_buffers();
  for (const auto& item : got.named_buffers()) {
    expect_near(item.value(), all[item.key()], tolerance, item.key());
  }
}

}  // namespace lockstep
