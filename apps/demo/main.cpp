// What `make demo` runs: DDP on two ranks over Gloo, from pixels to a tested accuracy.
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "../digits/mlp.h"

namespace ls = lockstep;

namespace {

// Installed, it lies with the program; else in the source tree, where `make demo` runs.
std::filesystem::path digits_file() {
  const auto bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto installed = (bin / "../share/lockstep/digits.csv.gz").lexically_normal();
  return std::filesystem::exists(installed) ? installed : "data/digits.csv.gz";
}

}  // namespace

int main(int argc, char** argv) {
  constexpr double kGoodAccuracy = 0.95;
  const ls::Program program{.name = "demo",
                            .description = "Trains a classifier of handwritten digits with DDP on two ranks.",
                            .trainer = {.max_epochs = 12, .strategy = ls::Ddp{}, .devices = 2}};
  return ls::run(argc, argv, program, [](ls::Cli& cli) {
    const auto start = std::chrono::steady_clock::now();
    torch::manual_seed(0);
    ls::Trainer trainer(cli.trainer());
    const auto all = ls::csv_dataset(digits_file(), {.label = -1, .scale = 1.0 / 16});
    auto [rest, test] = ls::split(all, 0.8, {.seed = 0});
    auto [train, val] = ls::split(rest, 0.9, {.seed = 1});
    const digits::Mlp network(64, std::vector<std::int64_t>{128, 64}, 10,
                              digits::OptimizerOptions{.lr = 3e-3});
    trainer.fit(network, ls::loader(train, {.batch_size = 32, .shuffle = true}),
                ls::loader(val, {.batch_size = 256}));
    const auto metrics = trainer.test(network, ls::loader(test, {.batch_size = 256}));

    const double accuracy = metrics.at("test_accuracy");
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    char line[128];
    std::snprintf(line, sizeof line, "demo: test accuracy %.3f (%d ranks, %lld steps, %.1f s)", accuracy,
                  trainer.world_size(), static_cast<long long>(trainer.global_step()), seconds);
    trainer.print(line);
    if (accuracy < kGoodAccuracy) {
      throw ls::Error("demo", {.what = "the model did not learn",
                               .expected = "an accuracy of 0.95 or more",
                               .got = std::to_string(accuracy)});
    }
  });
}
