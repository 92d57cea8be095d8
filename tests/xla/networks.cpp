#include "xla/networks.h"

#include <torch/torch.h>

#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer_factory.h>

#include "gpt.h"
#include "xla/device.h"

namespace lockstep::test {
namespace {

constexpr int kBatches = 4;

// The network, and what its inputs and targets look like.
struct Kind {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::function<at::Tensor()> inputs, targets;
};

template <class Holder>
Kind kind_of(Holder network, std::function<at::Tensor()> inputs, std::function<at::Tensor()> targets) {
  return {network.ptr(), [network](const at::Tensor& x) mutable { return network->forward(x); },
          std::move(inputs), std::move(targets)};
}

torch::nn::Sequential make_convnet() {
  using namespace torch::nn;
  return Sequential(Conv2d(Conv2dOptions(1, 8, 3).padding(1)), BatchNorm2d(8), ReLU(), MaxPool2d(2),
                    Conv2d(Conv2dOptions(8, 16, 3).padding(1).stride(2)), BatchNorm2d(16), ReLU(),
                    AdaptiveAvgPool2d(1), Flatten(), Linear(16, 10));
}

Kind make_kind(const std::string& kind) {
  using namespace torch::nn;
  const auto targets = [] { return at::randint(10, {32}); };
  if (kind == "mlp")
    return kind_of(
        Sequential(Linear(64, 128), ReLU(), Linear(128, 10)),
        [] {
          return at::rand({32, 64});
        },
        targets);
  if (kind == "convnet")
    return kind_of(
        make_convnet(),
        [] {
          return at::rand({32, 1, 8, 8});
        },
        targets);
  const lm::GptShape shape{.layers = 2, .heads = 2, .width = 32, .context = 16, .vocab = 64};
  const auto tokens = [] { return at::randint(64, {4, 16}); };
  return kind_of(lm::Gpt(shape), tokens, tokens);
}

}  // namespace

NetworkTraining::NetworkTraining(const std::string& kind, at::Device device) {
  at::manual_seed(31);
  auto made = make_kind(kind);
  for (int i = 0; i < kBatches; ++i) {
    const auto inputs = made.inputs();
    const auto targets = made.targets();
    const xla::DealtOut dealt_out;
    batches_.push_back({inputs.to(device), targets.to(device)});
  }
  made.module->to(device);
  forward_ = [forward = made.forward](const Tensors& t) { return forward(t[0]); };
  std::vector<NamedParameter> named;
  for (const auto& parameter : made.module->named_parameters()) {
    named.push_back({parameter.key(), parameter.value()});
    parameters_.push_back(parameter.value());
  }
  optimizer_ = OptimizerFactory(AdamW{.lr = 1e-3}).create(std::move(named));
}

Tensors NetworkTraining::step(const Tensors& batch) {
  for (auto& parameter : parameters_) parameter.mutable_grad().reset();
  const auto scores = forward_(batch);
  const auto loss = at::cross_entropy_loss(scores.view({-1, scores.size(-1)}), batch[1].view({-1}));
  loss.backward();
  clip_gradients_lazily(parameters_, {.value = 1.0});
  optimizer_->step();
  return {loss.detach()};
}

}  // namespace lockstep::test
