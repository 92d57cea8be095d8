// Batch normalisation over the batches of all ranks, by hand and by the library: dist_batch_norm
// --world-size=3
#include "tutorial.h"

namespace ls = lockstep;
namespace nn = torch::nn;

// The sum over ranks; its backward sums over ranks, too, since every rank's loss depends on every rank's
// input.
torch::Tensor sum_over_ranks(const ls::Communicator& group, const torch::Tensor& own) {
  const auto total = own.detach().clone();
  group.all_reduce(total);
  const auto sum = own + (total - own.detach());
  sum.register_hook([group](const torch::Tensor& grad) {
    const auto of_all = grad.clone();
    group.all_reduce(of_all);
    return of_all;
  });
  return sum;
}

torch::Tensor batch_norm_by_hand(const ls::Communicator& group, const nn::BatchNorm1d& norm,
                                 const torch::Tensor& x) {
  const auto rows = torch::full({1}, double(x.size(0)));
  const auto sums = sum_over_ranks(group, torch::cat({x.sum(0), x.square().sum(0), rows}));
  const auto parts = sums.split_with_sizes({x.size(1), x.size(1), 1});
  const auto mean = parts[0] / parts[2];
  const auto variance = parts[1] / parts[2] - mean.square();
  const double epsilon = norm->options.eps();
  return (x - mean) * (variance + epsilon).rsqrt() * norm->weight + norm->bias;
}

struct Pass {
  torch::Tensor output, gradient;  // of this rank's rows
};

template <class Forward>
Pass run(const torch::Tensor& rows, const torch::Tensor& weights, const Forward& forward) {
  const auto x = rows.clone().requires_grad_();
  const auto output = forward(x);
  (output * weights).sum().backward();
  return {output.detach(), x.grad()};
}

void print_difference(const char* name, const ls::Communicator& group, const Pass& found,
                      const Pass& expected) {
  const auto worst = torch::stack(
      {(found.output - expected.output).abs().max(), (found.gradient - expected.gradient).abs().max()});
  group.all_reduce(worst, ls::ReduceOp::kMax);
  if (group.rank() != 0) return;
  std::cout << name << ": outputs differ by " << worst[0].item<double>() << ", gradients by "
            << worst[1].item<double>() << std::endl;
}

void normalise(int rank, int world_size) {
  const auto group = ls::init_process_group({.backend = "gloo", .rank = rank, .world_size = world_size});
  constexpr std::int64_t kRows = 4, kChannels = 5;
  torch::manual_seed(0);  // all ranks know all rows, to compare with one process that has them all
  const auto all_rows = torch::randn({world_size * kRows, kChannels}) + 2;
  const auto all_weights = torch::randn({world_size * kRows, kChannels});
  const auto own = [&](const torch::Tensor& all) { return all.narrow(0, rank * kRows, kRows); };

  nn::BatchNorm1d norm(kChannels);
  const auto local = [&](const torch::Tensor& x) { return norm->forward(x); };
  const auto whole = run(all_rows, all_weights, local);
  const Pass expected{own(whole.output), own(whole.gradient)};

  const auto compare = [&](const char* name, const auto& forward) {
    print_difference(name, group, run(own(all_rows), own(all_weights), forward), expected);
  };
  compare("each rank by itself", local);
  compare("by hand", [&](const torch::Tensor& x) { return batch_norm_by_hand(group, norm, x); });
  const ls::SyncBatchNorm sync(*norm.ptr(), group);  // as long as it lives
  compare("ls::SyncBatchNorm", local);
}

int main(int argc, char** argv) {
  return ls::run_rank([&] {
    const auto args = tutorial::parse_args<tutorial::SpawnArgs>(argc, argv);

    tutorial::start(args, normalise, std::tuple(args.world_size));
  });
}
