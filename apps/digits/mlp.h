// A classifier of rows of numbers: Linear layers with ReLU between them.
#pragma once

#include <lockstep/lockstep.h>

#include <utility>
#include <vector>

namespace digits {

namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// Which optimizer, and how fast.
enum class OptimizerName { kSgd, kAdamW, kAdagrad, kLion, kLamb, kMuon };

struct OptimizerOptions {
  OptimizerName name = OptimizerName::kAdamW;
  double lr = 3e-3;
};

struct MlpImpl : ls::Module<ls::Example> {
  MlpImpl(std::int64_t inputs, const std::vector<std::int64_t>& hidden, std::int64_t classes,
          OptimizerOptions optimizer)
      : optimizer_(optimizer) {
    auto width = inputs;
    for (const auto next : hidden) {
      net->push_back(nn::Linear(width, next));
      net->push_back(nn::ReLU());
      width = next;
    }
    net->push_back(nn::Linear(width, classes));
    register_module("net", net);
  }

  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
    step.log("train_loss", loss, {.prog_bar = true, .on_epoch = true, .sync_dist = true});
    return loss;
  }

  void validation_step(const ls::Example& batch, ls::StepContext& step) override {
    evaluate(batch, step, "val");
  }
  void test_step(const ls::Example& batch, ls::StepContext& step) override { evaluate(batch, step, "test"); }

  ls::Optimizers configure_optimizers() override { return {.optimizer = factory()}; }

  nn::Sequential net;

 private:
  ls::OptimizerFactory factory() const {
    const double lr = optimizer_.lr;
    switch (optimizer_.name) {
      case OptimizerName::kSgd:
        return ls::SGD{.lr = lr, .momentum = 0.9};
      case OptimizerName::kAdagrad:
        return ls::Adagrad{.lr = lr};
      case OptimizerName::kLion:
        return ls::Lion{.lr = lr};
      case OptimizerName::kLamb:
        return ls::Lamb{.lr = lr};
      case OptimizerName::kMuon:
        return ls::Muon{.lr = lr, .adam_lr = lr};
      case OptimizerName::kAdamW:
        break;
    }
    return ls::AdamW{.lr = lr};
  }

  void evaluate(const ls::Example& batch, ls::StepContext& step, const std::string& stage) {
    const auto logits = net->forward(batch.data);
    const auto correct = logits.argmax(1).eq(batch.target).to(torch::kFloat);
    step.log(stage + "_loss", F::cross_entropy(logits, batch.target), {.sync_dist = true});
    step.log(stage + "_accuracy", correct.mean(), {.prog_bar = true, .sync_dist = true});
  }

  OptimizerOptions optimizer_;
};
TORCH_MODULE(Mlp);

}  // namespace digits
