// Models, batches and comparisons that the tests of DdpEngine share.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <lockstep/comm/communicator.h>
#include <lockstep/parallel/ddp/ddp_engine.h>

namespace lockstep {

constexpr std::int64_t kRows = 12;  // of the global batch; divisible by 2, 3 and 4

// Ranks are threads and share the generator: models are made by one at a time, from a seed.
inline std::mutex generator_mutex;

inline torch::nn::Sequential make_model(std::uint64_t seed = 1) {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(10, 24), torch::nn::ReLU(), torch::nn::BatchNorm1d(24),
                               torch::nn::Linear(24, 24), torch::nn::Tanh(), torch::nn::Linear(24, 5));
}

inline torch::nn::Sequential make_plain_model(std::uint64_t seed = 1) {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(10, 24), torch::nn::Tanh(), torch::nn::Linear(24, 5));
}

inline at::Tensor batch(std::int64_t step) {
  return at::arange(kRows * 10, at::kFloat)
      .view({kRows, 10})
      .mul(0.37 + 0.1 * static_cast<double>(step))
      .sin();
}

inline at::Tensor share(const at::Tensor& whole, const Communicator& comm) {
  const auto rows = kRows / comm.size();
  return whole.narrow(0, comm.rank() * rows, rows);
}

inline at::Tensor loss_of(torch::nn::Sequential& model, const at::Tensor& input) {
  return model->forward(input).pow(2).mean();
}

inline std::vector<at::Tensor> gradients(const torch::nn::Module& model) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : model.parameters()) all.push_back(parameter.grad());
  return all;
}

inline at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (const auto& tensor : tensors) all.push_back(tensor.detach().reshape({-1}).clone());
  return at::cat(all);
}

inline void step_and_clear(const torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) {
    parameter.sub_(parameter.grad(), 0.1);
    parameter.mutable_grad().reset();
  }
}

inline void expect_same_bits(const Communicator& comm, const at::Tensor& mine) {
  const auto all = at::empty({comm.size(), mine.numel()}, mine.options());
  comm.all_gather(all, mine);
  for (int rank = 0; rank < comm.size(); ++rank) EXPECT_TRUE(all[rank].equal(mine)) << "rank " << rank;
}

inline torch::nn::Linear make_layer(std::int64_t inputs, std::int64_t outputs) {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(1);
  return torch::nn::Linear(torch::nn::LinearOptions(inputs, outputs).bias(false));
}

/// An activation checkpoint: its backward runs a graph of its own inside of the outer one.
struct Reentrant : torch::autograd::Function<Reentrant> {
  using Body = std::function<at::Tensor(const at::Tensor&)>;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input, Body body) {
    context->save_for_backward({input});
    context->saved_data["body"] =
        static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(new Body(std::move(body))));
    const at::NoGradGuard no_grad;
    return (*body_of(context))(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const std::unique_ptr<Body> body(body_of(context));
    const at::AutoGradMode enable(true);
    const auto input = context->get_saved_variables()[0].detach().requires_grad_();
    (*body)(input).backward(gradients[0]);
    return {input.grad(), at::Tensor()};
  }
  static Body* body_of(torch::autograd::AutogradContext* context) {
    return reinterpret_cast<Body*>(static_cast<std::intptr_t>(context->saved_data["body"].toInt()));
  }
};

/// One averaged backward and a plain step.
inline void train_step(torch::nn::Sequential& model, DdpEngine& engine, const at::Tensor& input) {
  engine.backward(loss_of(model, input));
  step_and_clear(*model);
  engine.after_step();
}

}  // namespace lockstep
