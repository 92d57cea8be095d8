// Gradients averaged, and the step taken, by hand: dist_train_manual --world-size=4
#include "tutorial.h"

namespace ls = lockstep;
namespace nn = torch::nn;

void train_dist(int rank, int world_size, int num_iter, bool check) {
  // Setup the process group.
  const auto group = ls::init_process_group({.backend = "gloo", .rank = rank, .world_size = world_size});

  // Model initialization and training loop.
  torch::manual_seed(0);  // the same model on every rank
  nn::Sequential model(nn::Linear(10, 10), nn::Linear(10, 10));
  const double learning_rate = 0.001;
  torch::manual_seed(rank + 1);  // and other data

  for (int i = 0; i < num_iter; ++i) {
    const auto loss = model->forward(torch::randn({10})).sum();
    auto params = model->parameters();
    const auto grads = ls::autograd_grad(loss, params);
    const torch::NoGradGuard no_grad;
    for (std::size_t p = 0; p < params.size(); ++p) {
      group.all_reduce(grads[p], ls::ReduceOp::kSum);
      params[p] -= learning_rate * grads[p] / world_size;
    }
  }

  if (check) tutorial::print_comparison(group, model->parameters());
}

int main(int argc, char** argv) {
  return ls::run_rank([&] {
    const auto args = tutorial::parse_args<tutorial::TrainArgs>(argc, argv);

    tutorial::start(args, train_dist, std::tuple(args.world_size, args.num_iter, args.check));

    std::cout << "Finished training!" << std::endl;
  });
}
