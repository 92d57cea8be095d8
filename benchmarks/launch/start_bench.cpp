// From the start of a program to the end of its first all-reduce.
//
// Usage: bench_start --fabric.devices RANKS --bench.results FILE. The peer is peers/start.py under torchrun.
#include <lockstep/lockstep.h>

#include <string>

#include "results.h"

namespace ls = lockstep;

namespace bench {

struct Options {
  std::string results;
};

void describe(ls::OptionVisitor& visitor, Options& options) {
  visitor.field("results", options.results, "File to which each rank appends when it was done");
}

}  // namespace bench

int main(int argc, char** argv) {
  bench::Options options;
  const ls::Program program{.fabric = ls::FabricOptions{.strategy = ls::Ddp{}},
                            .options = {ls::options("bench", options)}};
  return ls::run(argc, argv, program, [&](ls::Cli& cli) {
    ls::Fabric fabric(cli.fabric());
    fabric.launch();
    const double sum = fabric.all_reduce(1.0, ls::ReduceOp::kSum);
    const auto done_ns = bench::now_ns();
    if (sum != fabric.world_size()) throw ls::Error("bench", {.what = "a wrong sum"});
    bench::Results(options.results).add_moment("ranks_" + std::to_string(fabric.world_size()), done_ns);
  });
}
