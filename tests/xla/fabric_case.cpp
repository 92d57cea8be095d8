// fabric_case STRATEGY DEVICES: a loop of one's own under a strategy that is named in code, with windows that
// accumulate. Prints each step's loss, averaged over ranks, on rank 0.
#include <cstdio>
#include <cstdlib>

#include <lockstep/lockstep.h>

namespace ls = lockstep;

namespace {

at::Tensor rows_of(int step, int rank) {
  return at::arange(12, at::kFloat).reshape({4, 3}).mul(0.1).add(0.3 * step + 0.7 * rank).sin();
}

void train(ls::Fabric& fabric) {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
  auto [model, optimizer] = fabric.setup(net, ls::AdamW{.lr = 0.05});
  for (int step = 0; step < 12; ++step) {
    const auto rows = fabric.to_device(rows_of(step, fabric.global_rank()));
    const auto loss = model->forward(rows).pow(2).mean();
    if (step % 2 == 0) {
      const auto local = fabric.no_backward_sync(model);
      fabric.backward(loss);
    } else {
      fabric.backward(loss);
      optimizer->step();
      optimizer->zero_grad();
    }
    const auto mean = fabric.all_reduce(loss.detach().to(at::kCPU), ls::ReduceOp::kAvg);
    if (fabric.is_global_zero()) std::printf("%.9g\n", mean.item<double>());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    ls::Fabric fabric({.strategy = argv[1], .devices = std::atoi(argv[2])});
    fabric.launch();
    train(fabric);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
