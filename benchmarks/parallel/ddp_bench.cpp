// A training step alone and under Ddp, on two ranks at once.
//
// Usage: bench_ddp RESULTS STEPS. The peer is peers/ddp.py.
#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>
#include <lockstep/lockstep.h>

#include <cstdlib>
#include <string>

#include "networks.h"
#include "results.h"
#include "source.h"

namespace {

namespace ls = lockstep;
namespace F = torch::nn::functional;
using bench::Source;

constexpr int kRanks = 2;
const ls::SGD kSgd{.lr = 0.01};
constexpr std::int64_t kMidSteps = 20;
constexpr std::int64_t kMidWarmup = 5;

double train(ls::Fabric& fabric, torch::nn::Sequential network, const Source& source) {
  auto [model, optimizer] = fabric.setup(std::move(network), kSgd);
  fabric.barrier();
  for (std::int64_t index = 0; index < source.batches(); ++index) {
    const auto& batch = source.take(index);
    const auto loss = F::cross_entropy(model->forward(batch.data), batch.target);
    optimizer->zero_grad();
    fabric.backward(loss, model);
    optimizer->step();
  }
  return source.ns_per_step();
}

// The same without ranks: what this process would do alone, while the other one does so too.
double train_locally(const ls::Fabric& fabric, torch::nn::Sequential model, const Source& source) {
  std::vector<ls::NamedParameter> parameters;
  for (const auto& item : model->named_parameters()) parameters.push_back({item.key(), item.value()});
  const auto optimizer = ls::OptimizerFactory(kSgd).create(std::move(parameters));
  fabric.barrier();
  for (std::int64_t index = 0; index < source.batches(); ++index) {
    const auto& batch = source.take(index);
    const auto loss = F::cross_entropy(model->forward(batch.data), batch.target);
    optimizer->zero_grad();
    loss.backward();
    optimizer->step();
  }
  return source.ns_per_step();
}

void measure(const std::string& name, ls::Fabric& fabric, torch::nn::Sequential (*network)(),
             const Source& source, const bench::Results& results) {
  const double local = train_locally(fabric, network(), source);
  const double ddp = train(fabric, network(), source);
  if (!fabric.is_global_zero()) return;
  results.add(name + "_local", local);
  results.add(name + "_ddp", ddp);
}

void run_rank(const bench::Results& results, std::int64_t steps) {
  torch::set_num_threads(1);
  ls::Fabric fabric({.strategy = ls::Ddp{}, .devices = kRanks});
  fabric.launch();
  measure("tiny", fabric, bench::tiny_mlp, Source(bench::tiny_batch(), steps), results);
  measure("mid", fabric, bench::mid_mlp, Source(bench::tiny_batch(), kMidSteps, kMidWarmup), results);
  fabric.barrier();
}

}  // namespace

int main(int, char** argv) {
  const bench::Results results(argv[1]);
  const std::int64_t steps = std::atoi(argv[2]);
  return ls::launch_forked({.nprocs = kRanks},
                           [&] { return ls::run_rank([&] { run_rank(results, steps); }); });
}
