// Which samples each rank sees, by hand and by the library: dist_sampler --world-size=3
#include <ATen/CPUGeneratorImpl.h>

#include "tutorial.h"

namespace ls = lockstep;

struct Args : tutorial::SpawnArgs {
  std::int64_t size = 10;
  int epochs = 2;
};

void describe(ls::OptionVisitor& v, Args& args) {
  describe(v, static_cast<tutorial::SpawnArgs&>(args));
  v.field("size", args.size, "Samples of the data set", ls::at_least(1));
  v.field("epochs", args.epochs, "Passes over it", ls::at_least(0));
}

std::vector<std::int64_t> indices_by_hand(std::int64_t size, int world_size, int rank, std::uint64_t epoch) {
  // All ranks shuffle alike, each epoch in another way.
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(epoch);
  auto order = torch::randperm(size, std::optional<at::Generator>(generator), torch::kLong);

  // The same number for each rank: the list goes on with its own beginning.
  const auto per_rank = (size + world_size - 1) / world_size;
  while (order.size(0) < per_rank * world_size)
    order = torch::cat({order, order.slice(0, 0, per_rank * world_size - order.size(0))});

  const auto own = order.slice(0, rank, order.size(0), /*step=*/world_size).contiguous();
  return {own.const_data_ptr<std::int64_t>(), own.const_data_ptr<std::int64_t>() + own.numel()};
}

std::string text_of(const std::vector<std::int64_t>& indices) {
  std::string text;
  for (const auto index : indices) text += ' ' + std::to_string(index);
  return text;
}

void sample(int rank, const Args& args) {
  const auto group = ls::init_process_group({.backend = "gloo", .rank = rank, .world_size = args.world_size});
  ls::DistributedSampler sampler(args.size, args.world_size, rank);

  for (int epoch = 0; epoch < args.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    const auto own = indices_by_hand(args.size, args.world_size, rank, static_cast<std::uint64_t>(epoch));
    if (own != sampler.indices()) throw std::runtime_error("the sampler gives" + text_of(sampler.indices()));
    const auto lines = group.gather_bytes("epoch " + std::to_string(epoch) + ", rank " +
                                          std::to_string(rank) + ":" + text_of(own));
    for (const auto& line : lines) std::cout << line << std::endl;
  }
  if (rank == 0) std::cout << "The indices are those of ls::DistributedSampler." << std::endl;
}

int main(int argc, char** argv) {
  return ls::run_rank([&] {
    const auto args = tutorial::parse_args<Args>(argc, argv);

    tutorial::start(args, sample, std::tuple(args));
  });
}
