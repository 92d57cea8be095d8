// Collectives, properties and loaders.
#include <filesystem>
#include <fstream>
#include <set>

#include "cases.h"

namespace fabric_case {

namespace {

std::multiset<float> values_of(ls::FabricLoader<ls::Example>& loader) {
  std::multiset<float> values;
  for (const auto& batch : loader) {
    for (std::int64_t row = 0; row < batch.data.size(0); ++row) values.insert(batch.data[row].item<float>());
  }
  return values;
}

// Over all ranks, how often each of `size` values was seen.
torch::Tensor counts_over_ranks(const ls::Fabric& fabric, const std::multiset<float>& values, int size) {
  auto counts = torch::zeros({size});
  for (const float value : values) counts[static_cast<std::int64_t>(value)] += 1;
  return fabric.all_reduce(counts, ls::ReduceOp::kSum);
}

// Rank r gives 5 + r batches of the number r.
struct Stream : ls::IterableDataset<float, ls::Example> {
  struct Items : ls::ItemStream<float> {
    explicit Items(int of_rank) : rank(of_rank) {}
    bool next(float& item) override {
      item = static_cast<float>(rank);
      return given++ < 5 + rank;
    }
    int rank, given = 0;
  };
  std::unique_ptr<ls::ItemStream<float>> stream(const ls::ShardSpec& spec, std::int64_t) const override {
    return std::make_unique<Items>(spec.rank);
  }
  ls::Example collate(std::vector<float> items) const override { return {torch::tensor(items), {}}; }
};

}  // namespace

void properties(ls::Fabric& fabric) {
  require(fabric.global_rank() == fabric.strategy().communicator().rank(), "global_rank");
  require(fabric.world_size() == fabric.strategy().communicator().size(), "world_size");
  require(fabric.local_rank() == fabric.global_rank() && fabric.node_rank() == 0, "one node");
  require(fabric.is_global_zero() == (fabric.global_rank() == 0), "is_global_zero");
  require(fabric.device().is_cpu(), "device");
  fabric.launch();  // again: nothing happens
  fabric.print("printed once");
  require(fabric.launch([](ls::Fabric& same) { return same.world_size(); }) == fabric.world_size(), "result");
}

void collectives(ls::Fabric& fabric) {
  const int rank = fabric.global_rank(), world = fabric.world_size();
  const auto own = torch::full({2}, rank + 1.0);
  const auto gathered = fabric.all_gather(own);
  require(gathered.sizes() == at::IntArrayRef({world, 2}), "leading dimension");
  for (int other = 0; other < world; ++other)
    require(gathered[other][1].item<double>() == other + 1, "order");
  const auto on_rank = "() on rank " + std::to_string(rank);
  require_error([&] { (void)fabric.all_gather({}); }, "all_gather" + on_rank);
  require_error([&] { (void)fabric.all_reduce(at::Tensor()); }, "all_reduce" + on_rank);
  if (world == 1) require_error([&] { (void)fabric.broadcast(at::Tensor()); }, "broadcast" + on_rank);
  require(fabric.all_gather(torch::tensor(1.5)).sizes() == at::IntArrayRef({world}), "scalars too");

  const double sum = world * (world + 1) / 2.0;
  require(fabric.all_reduce(own)[0].item<double>() == sum / world, "mean");
  require(fabric.all_reduce(own, "sum")[0].item<double>() == sum, "sum");
  require(own[0].item<double>() == rank + 1, "input is left alone");
  require(fabric.all_reduce(rank + 1.0, ls::ReduceOp::kMax) == world, "numbers");

  const int last = world - 1;
  const auto sent = rank == last ? torch::arange(6).view({2, 3}) : torch::zeros({1});
  require(torch::equal(fabric.broadcast(sent, last), torch::arange(6).view({2, 3})), "any shape and dtype");
  const auto row = torch::arange(3).view({1, 3}).expand({2, 3});
  require(torch::equal(fabric.broadcast(rank == 0 ? row : at::Tensor(), 0), row), "an expanded tensor");
  require(fabric.broadcast("rank " + std::to_string(rank), last) == "rank " + std::to_string(last), "text");
  fabric.barrier();
}

void rank_zero_first(ls::Fabric& fabric) {
  for (const bool local : {false, true}) {
    const std::filesystem::path file = local ? "local" : "global";
    fabric.rank_zero_first(
        [&] {
          require(std::filesystem::exists(file) == !fabric.is_global_zero(), "rank 0 is the first");
          if (fabric.is_global_zero()) std::ofstream(file) << "data";
        },
        local);
  }
  bool ran = false;
  const auto fail_on_zero = [&] {
    ran = true;
    if (fabric.is_global_zero()) throw std::runtime_error("no network");
  };
  if (fabric.is_global_zero()) {
    require_error([&] { fabric.rank_zero_first(fail_on_zero); }, "no network");
  } else {
    fabric.rank_zero_first(fail_on_zero);
  }
  require(ran, "the others begin although rank 0 failed");
}

void loaders(ls::Fabric& fabric) {
  const int world = fabric.world_size(), size = 4 * world + 1;
  const auto whole = ls::loader(ls::tensor_dataset(torch::arange(size).to(torch::kFloat)),
                                {.batch_size = 2, .shuffle = true});
  auto [padded, same] = fabric.setup_dataloaders(whole, whole);
  require(padded.num_batches() == 3 && values_of(padded).size() == 5, "as many batches on every rank");
  require(padded.epoch() == 1, "a pass counts as an epoch");
  require(counts_over_ranks(fabric, values_of(same), size).sum().item<float>() == 5.0F * world,
          "a few repeat");

  auto once = fabric.setup_loader(whole, {.pad = false});
  require(torch::equal(counts_over_ranks(fabric, values_of(once), size), torch::ones({size})), "each once");
  auto everything = fabric.setup_loader(whole, {.use_distributed_sampler = false});
  require(values_of(everything).size() == static_cast<std::size_t>(size), "all on every rank");

  const auto first_batch = [](auto& loader) { return loader.begin()->data.clone(); };
  padded.set_epoch(0);
  const auto epoch_0 = first_batch(padded), epoch_1 = first_batch(padded), epoch_2 = first_batch(padded);
  require(!torch::equal(epoch_0, epoch_1) || !torch::equal(epoch_1, epoch_2),
          "every epoch has its own order");
  padded.set_epoch(0);
  require(torch::equal(first_batch(padded), epoch_0), "set_epoch repeats one");
  fabric.seed_everything(fabric.seed_everything(77));
  auto reseeded = fabric.setup_loader(whole);
  require(world > 1 || !torch::equal(first_batch(reseeded), epoch_0), "the seed is the run's");
}

void streams(ls::Fabric& fabric) {
  const int world = fabric.world_size();
  const auto uneven = ls::loader(std::make_shared<Stream>());
  auto together = fabric.setup_loader(uneven);
  int steps = 0;
  for (const auto& batch : together) {  // each step has a collective, as training has
    const auto sum = fabric.all_reduce(batch.data, ls::ReduceOp::kSum).item<double>();
    require(sum == world * (world - 1) / 2.0, "every rank's own stream");
    ++steps;
  }
  require(steps == 5, "all end with the shortest");
  auto own = fabric.setup_loader(uneven, {.pad = false});
  require(values_of(own).size() == 5U + static_cast<unsigned>(fabric.global_rank()), "each to its end");
  auto strict = fabric.setup_loader(uneven, {.uneven_streams = ls::UnevenStreams::kRefuse});
  if (world > 1) require_error([&] { values_of(strict); }, "different lengths");
}

}  // namespace fabric_case
