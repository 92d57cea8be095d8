// Gradients averaged by hooks, so that any optimizer takes the step: dist_train_hooks --world-size=4
#include "tutorial.h"

namespace ls = lockstep;
namespace nn = torch::nn;

void grad_avg_hook(const ls::Communicator& group, const torch::Tensor& param) {
  group.all_reduce(param.grad(), ls::ReduceOp::kSum);
  param.grad().div_(group.size());
}

void train_dist(int rank, int world_size, int num_iter, bool check) {
  // Setup the process group.
  const auto group = ls::init_process_group({.backend = "gloo", .rank = rank, .world_size = world_size});

  // Model initialization and training loop.
  torch::manual_seed(0);  // the same model on every rank
  nn::Sequential model(nn::Linear(10, 10), nn::Linear(10, 10));
  const double learning_rate = 0.001;
  torch::optim::SGD optimizer(model->parameters(), learning_rate);
  const auto hook = [&](const torch::Tensor& param) { grad_avg_hook(group, param); };
  for (const auto& param : model->parameters()) ls::register_post_accumulate_grad_hook(param, hook);
  torch::manual_seed(rank + 1);  // and other data

  for (int i = 0; i < num_iter; ++i) {
    if (rank == 0) std::cout << "Iteration " << i + 1 << "/" << num_iter << std::endl;
    optimizer.zero_grad();
    const auto loss = model->forward(torch::rand({10})).sum();
    loss.backward();
    optimizer.step();
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
