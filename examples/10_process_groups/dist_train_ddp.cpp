// A DistributedDataParallel of one's own beside the library's: dist_train_ddp --world-size=3
#include "own_ddp.h"
#include "tutorial.h"

namespace ls = lockstep;
namespace nn = torch::nn;

struct Args : tutorial::TrainArgs {
  int accumulate = 1;
};

void describe(ls::OptionVisitor& v, Args& args) {
  describe(v, static_cast<tutorial::TrainArgs&>(args));
  v.field("accumulate", args.accumulate, "Batches of each step", ls::at_least(1));
}

nn::Sequential make_model(int seed) {
  torch::manual_seed(seed);
  return nn::Sequential(nn::Linear(10, 40), nn::BatchNorm1d(40), nn::ReLU(), nn::Linear(40, 3));
}

torch::Tensor batch_of(int rank, int number) {
  torch::manual_seed(1000 * (rank + 1) + number);
  return torch::rand({8, 10});
}

// Both kinds of DDP have backward(), after_step() and a way to leave the other ranks out.
template <class Backward, class AfterStep>
void train(nn::Sequential model, int rank, const Args& args, const Backward& backward,
           const AfterStep& after_step) {
  torch::optim::Adam optimizer(model->parameters(), 0.01);
  for (int i = 0; i < args.num_iter; ++i) {
    optimizer.zero_grad();
    for (int part = 0; part < args.accumulate; ++part) {
      const auto output = model->forward(batch_of(rank, i * args.accumulate + part));
      backward(output.square().mean() / args.accumulate, /*sync=*/part + 1 == args.accumulate);
    }
    optimizer.step();
    after_step();
  }
}

std::vector<torch::Tensor> tensors_of(const nn::Sequential& model) {
  auto tensors = model->parameters();
  for (const auto& buffer : model->buffers()) tensors.push_back(buffer);
  return tensors;
}

void train_dist(int rank, const Args& args) {
  const auto group = ls::init_process_group({.backend = "gloo", .rank = rank, .world_size = args.world_size});

  const auto own_model = make_model(/*seed=*/rank);  // DDP makes it rank 0's
  tutorial::OwnDdp own(*own_model, group, /*bucket_cap_bytes=*/1024);
  train(
      own_model, rank, args, [&](const torch::Tensor& loss, bool sync) { own.backward(loss, sync); },
      [&] { own.after_step(); });

  const auto model = make_model(/*seed=*/rank);
  ls::DdpEngine engine(*model, group, ls::Ddp{});
  train(
      model, rank, args,
      [&](const torch::Tensor& loss, bool sync) { sync ? engine.backward(loss) : loss.backward(); },
      [&] { engine.after_step(); });

  const auto ours = tensors_of(own_model), theirs = tensors_of(model);
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (!torch::equal(ours[i], theirs[i])) throw std::runtime_error("the two kinds of DDP differ");
  if (rank == 0) std::cout << "OwnDdp and ls::Ddp: " << ours.size() << " tensors, the same bits" << std::endl;
  if (args.check) tutorial::print_comparison(group, model->parameters());
}

int main(int argc, char** argv) {
  return ls::run_rank([&] {
    const auto args = tutorial::parse_args<Args>(argc, argv);

    tutorial::start(args, train_dist, std::tuple(args));
  });
}
