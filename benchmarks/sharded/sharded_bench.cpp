// A training step of a transformer under a strategy that is chosen by name: its time, memory and traffic.
//
// Usage: bench_sharded --fabric.devices RANKS --fabric.strategy NAME --bench.results FILE
// [--bench.size 10m|14m|85m] [--bench.steps N]. The peer is peers/fsdp2.py.
#include <lockstep/lockstep.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "gpt.h"
#include "process_memory.h"
#include "results.h"

namespace ls = lockstep;

namespace bench {

constexpr std::int64_t kTokens = 128;  // of one sample
constexpr std::int64_t kWarmupSteps = 2;

enum class Size { k10m, k14m, k85m };

std::span<const ls::OptionName<Size>> option_names(Size) {
  static constexpr ls::OptionName<Size> kNames[] = {
      {"10m", Size::k10m}, {"14m", Size::k14m}, {"85m", Size::k85m}};
  return kNames;
}

struct Options {
  std::string results;
  Size size = Size::k10m;
  std::int64_t steps = 10;
};

void describe(ls::OptionVisitor& visitor, Options& options) {
  visitor.field("results", options.results, "File to which ranks append");
  visitor.field("size", options.size, "Parameters of the model");
  visitor.field("steps", options.steps, "Steps that are measured", ls::at_least(1));
}

lm::GptShape shape_of(Size size) {
  if (size == Size::k10m) return {.layers = 6, .heads = 6, .width = 384, .context = kTokens};
  if (size == Size::k14m)
    return {.layers = 6, .heads = 6, .width = 384, .context = kTokens, .vocab = 4096, .tied = false};
  return {.layers = 12, .heads = 12, .width = 768, .context = kTokens};
}

// Samples of a rank's batch.
std::int64_t batch_of(Size size) { return size == Size::k14m ? 4 : 1; }

struct Steps {
  std::vector<double> ns;
  std::vector<double> losses;
};

Steps train(ls::Fabric& fabric, lm::Gpt& model, const std::shared_ptr<ls::FabricOptimizer>& optimizer,
            const torch::Tensor& tokens, std::int64_t steps) {
  Steps done;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto start_ns = now_ns();
    const auto loss = lm::next_token_loss(model->forward(tokens.slice(1, 0, -1)), tokens.slice(1, 1));
    optimizer->zero_grad();
    fabric.backward(loss, model);
    optimizer->step();
    done.ns.push_back(static_cast<double>(now_ns() - start_ns));
    done.losses.push_back(loss.item<double>());
  }
  return done;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const auto middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void measure(ls::Fabric& fabric, const Options& options) {
  const Results results(options.results);
  results.add_bytes("rss_before", resident_bytes());
  torch::manual_seed(0);
  lm::Gpt network{nullptr};
  {
    const auto scope = fabric.init_module();
    network = lm::Gpt(shape_of(options.size));
  }
  auto [model, optimizer] = fabric.setup(network, ls::AdamW{.lr = 1e-4});
  torch::manual_seed(1 + static_cast<std::uint64_t>(fabric.global_rank()));
  const auto tokens =
      torch::randint(shape_of(options.size).vocab, {batch_of(options.size), kTokens + 1}, torch::kLong);
  train(fabric, model, optimizer, tokens, kWarmupSteps);
  fabric.barrier();

  const auto sent_before = fabric.strategy().bytes_sent();
  const auto done = train(fabric, model, optimizer, tokens, options.steps);
  results.add_bytes("peak_rss", peak_resident_bytes());
  const auto sent = fabric.strategy().bytes_sent() - sent_before;
  results.add_bytes("sent", static_cast<std::int64_t>(sent) / options.steps);
  if (!fabric.is_global_zero()) return;
  results.add("step", median(done.ns));
  std::printf("bench_sharded: loss %.6f -> %.6f\n", done.losses.front(), done.losses.back());
}

}  // namespace bench

int main(int argc, char** argv) {
  bench::Options options;
  const ls::Program program{.fabric = ls::FabricOptions{.strategy = ls::Ddp{}},
                            .options = {ls::options("bench", options)}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    ls::Fabric fabric(cli.fabric());
    fabric.launch();
    torch::set_num_threads(1);
    bench::measure(fabric, options);
    fabric.barrier();
  });
}
