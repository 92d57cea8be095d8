// What a data loader takes for a sample of the digits, shuffled, in batches of 32: without workers and with
// two.
//
// Usage: bench_loader RESULTS DIGITS EPOCHS. The peer is peers/loader.py.
#include <lockstep/lockstep.h>

#include <cstdlib>
#include <string>

#include "results.h"

namespace {

namespace ls = lockstep;

// The first epoch warms up.
double ns_per_sample(const ls::Loader<ls::Example>& loader, int epochs) {
  std::int64_t samples = 0, first_ns = 0;
  for (int epoch = 0; epoch <= epochs; ++epoch) {
    if (epoch == 1) {
      first_ns = bench::now_ns();
      samples = 0;
    }
    const auto stream = loader.any().stream({}, epoch, 0);
    ls::AnyBatch batch;
    while (stream->next(batch)) samples += batch.size();
  }
  return static_cast<double>(bench::now_ns() - first_ns) / static_cast<double>(samples);
}

}  // namespace

int main(int, char** argv) {
  torch::set_num_threads(1);
  const auto data = ls::csv_dataset(argv[2], {.label = -1, .scale = 1.0 / 16});
  for (const int workers : {0, 2}) {
    const auto loader = ls::loader(
        data, {.batch_size = 32, .shuffle = true, .num_workers = workers, .persistent_workers = workers > 0});
    bench::Results(argv[1]).add("workers_" + std::to_string(workers),
                                ns_per_sample(loader, std::atoi(argv[3])));
  }
}
