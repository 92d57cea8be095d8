// xla_fabric_case STRATEGY DEVICES: a loop of one's own under a strategy that is named in code, with windows
// that accumulate. Prints each step's loss, averaged over ranks, on rank 0. STRATEGY may be "on_host": xla
// whose programs end behind backward; and "strict": single_xla with all its options, of which fallback
// refuses an operator. The plug-in is that of LOCKSTEP_PJRT_PLUGIN.
#include <cstdio>
#include <cstdlib>
#include <string>

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
    {
      const auto local = fabric.no_backward_sync(model, step % 2 == 0);
      fabric.backward(loss);
    }
    if (step % 2 == 1) {
      optimizer->step();
      optimizer->zero_grad();
    }
    const double mean = fabric.all_reduce(loss.item<double>());
    if (fabric.is_global_zero()) std::printf("%.9g\n", mean);
  }
}

ls::StrategyOptions strategy_named(const std::string& name) {
  if (name == "on_host") return ls::Xla{.reduce_in_program = false};
  if (name == "strict")
    return ls::SingleXla{
        .pjrt_plugin = std::getenv("LOCKSTEP_PJRT_PLUGIN"), .fallback = "error", .compile_cache = "off"};
  return name;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const std::string name = argv[1];
    ls::Fabric fabric({.strategy = strategy_named(name), .devices = std::atoi(argv[2])});
    fabric.launch();
    if (name == "strict")
      std::printf("%g\n", fabric.to_device(at::ones({2})).erfinv().sum().item<double>());
    else
      train(fabric);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
