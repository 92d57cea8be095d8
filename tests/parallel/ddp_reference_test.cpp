// A model with convolutions, normalisation, unused and frozen parameters against one process.
#include <gtest/gtest.h>

#include <lockstep/testing/run_ranks.h>

#include "ddp_support.h"

namespace lockstep {
namespace {

using testing::run_ranks;

struct Vision : torch::nn::Module {
  Vision() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("frozen", frozen);
    register_module("unused", unused);
    register_module("head", head);
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    norm->eval();  // statistics of a share differ from those of the whole batch
  }
  at::Tensor loss(const at::Tensor& images) {
    const auto hidden = frozen->forward(at::relu(norm->forward(conv->forward(images))));
    return head->forward(hidden.mean({2, 3})).pow(2).mean();
  }

  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 8, 3).padding(1)};
  torch::nn::BatchNorm2d norm{8};
  torch::nn::Conv2d frozen{torch::nn::Conv2dOptions(8, 8, 1)};
  torch::nn::Linear unused{8, 8};
  torch::nn::Linear head{8, 4};
};

std::shared_ptr<Vision> make_vision() {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(5);
  return std::make_shared<Vision>();
}

at::Tensor images(int step) {
  return at::arange(12 * 3 * 6 * 6, at::kFloat).view({12, 3, 6, 6}).mul(0.11 + 0.07 * step).sin();
}

std::vector<at::Tensor> defined_gradients(const Vision& model) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : model.parameters()) {
    if (parameter.grad().defined()) all.push_back(parameter.grad());
  }
  return all;
}

void descend(Vision& model) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : model.parameters()) {
    if (!parameter.grad().defined()) continue;
    parameter.sub_(parameter.grad(), 0.1);
    parameter.mutable_grad().reset();
  }
}

at::Tensor train(const std::function<void(Vision&, int)>& backward, Vision& model) {
  std::vector<at::Tensor> all;
  for (int step = 0; step < 4; ++step) {
    backward(model, step);
    all.push_back(flat(defined_gradients(model)));
    descend(model);
  }
  return at::cat(all);
}

class DdpReference : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DdpReference, ::testing::Values(2, 3, 4));

TEST_P(DdpReference, GradientsEqualThoseOfOneProcess) {
  const auto alone =
      train([](Vision& model, int step) { model.loss(images(step)).backward(); }, *make_vision());
  for (const Ddp& options : {Ddp{.find_unused_parameters = true}, Ddp{.static_graph = true},
                             Ddp{.find_unused_parameters = true, .gradient_as_bucket_view = true}}) {
    run_ranks(GetParam(), [&](const Communicator& comm) {
      const auto model = make_vision();
      DdpEngine engine(*model, comm, options);
      const auto together = train(
          [&](Vision& net, int step) {
            engine.backward(net.loss(share(images(step), comm)));
            engine.after_step();
          },
          *model);
      ASSERT_EQ(together.numel(), alone.numel());
      EXPECT_TRUE(at::allclose(together, alone, 1e-4, 1e-6)) << (together - alone).abs().max();
      expect_same_bits(comm, together);
      expect_same_bits(comm, flat(model->parameters()));
    });
  }
}

}  // namespace
}  // namespace lockstep
