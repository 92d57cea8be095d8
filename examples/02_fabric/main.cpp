// An own training loop: the classifier of handwritten digits without a Trainer.
#include <lockstep/lockstep.h>
namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct NetImpl : nn::Module {
  NetImpl() { register_module("layers", layers); }
  torch::Tensor forward(const torch::Tensor& pixels) { return layers->forward(pixels); }
  nn::Sequential layers{nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 10)};
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  const ls::Program program{.fabric = ls::FabricOptions{.strategy = ls::Ddp{}}};
  return ls::run(argc, argv, program, [](ls::Cli& cli) {
    ls::Fabric fabric(cli.fabric());
    fabric.launch();
    auto [train, val] =
        ls::split(ls::csv_dataset("data/digits.csv.gz", {.label = -1, .scale = 1.0 / 16}), 0.8, {.seed = 0});
    auto [model, optimizer] = fabric.setup(Net(), ls::AdamW{.lr = 1e-3});
    auto train_batches = fabric.setup_loader(ls::loader(train, {.batch_size = 32, .shuffle = true}));
    auto val_batches = fabric.setup_loader(ls::loader(val, {.batch_size = 256}), {.pad = false});

    for (int epoch = 0; epoch < 3; ++epoch) {
      for (const auto& batch : train_batches) {
        optimizer->zero_grad();
        const auto loss = F::cross_entropy(model->forward(batch.data), batch.target);
        fabric.backward(loss);
        fabric.clip_gradients(model, optimizer, {.max_norm = 1.0});
        optimizer->step();
      }
      const torch::NoGradGuard no_grad;
      auto counts = torch::zeros({2});  // correct ones, all
      for (const auto& batch : val_batches) {
        const auto correct = model->forward(batch.data).argmax(1).eq(batch.target);
        counts += torch::tensor({correct.sum().item<float>(), static_cast<float>(correct.numel())});
      }
      counts = fabric.all_reduce(counts, "sum");
      fabric.print("epoch " + std::to_string(epoch) + ", accuracy " +
                   std::to_string((counts[0] / counts[1]).item<float>()));
    }
    fabric.save("net.ckpt", {{"model", model}, {"optimizer", optimizer}});
  });
}
