// A generative adversarial network that learns to draw digits: two optimizers that step in turn.
//
//   example_03_manual_optimization_gan --trainer.devices 2 --trainer.max_epochs 20
#include <lockstep/lockstep.h>

namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct GanImpl : ls::Module<ls::Example> {
  GanImpl() {
    register_module("generator", generator);
    register_module("discriminator", discriminator);
  }

  // training_step itself runs backward and steps the optimizers.
  bool automatic_optimization() const override { return false; }

  ls::Optimizers configure_optimizers() override {
    const ls::Adam adam{.lr = 1e-3, .betas = {0.5, 0.999}};
    return ls::several_optimizers(
        {{.optimizer = adam, .module = generator.ptr()}, {.optimizer = adam, .module = discriminator.ptr()}});
  }

  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    auto draw = step.manual_optimizer(0);
    auto judge = step.manual_optimizer(1);
    const auto noise = torch::randn({batch.data.size(0), kLatent}, batch.data.options());
    {
      const auto toggled = draw.toggled();  // the discriminator's weights stay out of this pass
      const auto loss = adversarial_loss(generator->forward(noise), 1);
      step.log("g_loss", loss, {.prog_bar = true});
      draw.zero_grad();
      step.manual_backward(loss);
      draw.step();
    }
    {
      const auto toggled = judge.toggled();
      const auto fake = generator->forward(noise).detach();
      const auto loss = (adversarial_loss(batch.data, 1) + adversarial_loss(fake, 0)) / 2;
      step.log("d_loss", loss, {.prog_bar = true});
      judge.zero_grad();
      step.manual_backward(loss);
      judge.clip_gradients({.value = 1.0});
      judge.step();
    }
    return {};
  }

  // How far the discriminator is from calling every row real (1) or drawn (0).
  torch::Tensor adversarial_loss(const torch::Tensor& rows, double is_real) {
    const auto verdict = discriminator->forward(rows);
    return F::binary_cross_entropy_with_logits(verdict, torch::full_like(verdict, is_real));
  }

  static constexpr int kLatent = 16;
  nn::Sequential generator{nn::Linear(kLatent, 128), nn::ReLU(), nn::Linear(128, 64), nn::Sigmoid()};
  nn::Sequential discriminator{nn::Linear(64, 128), nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                               nn::Linear(128, 1)};
};
TORCH_MODULE(Gan);

int main(int argc, char** argv) {
  return ls::run(argc, argv, [](ls::Cli& cli) {
    const auto digits = ls::csv_dataset("data/digits.csv.gz", {.label = -1, .scale = 1.0 / 16});
    ls::Trainer trainer(cli.trainer({.max_epochs = 5, .strategy = ls::Ddp{}}));
    trainer.fit(Gan(), ls::loader(digits, {.batch_size = 64, .shuffle = true}));
  });
}
