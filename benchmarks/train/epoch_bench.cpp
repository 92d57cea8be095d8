// An epoch of the README's program, digits and all: data loader, training, validation, logging.
//
// Usage: bench_epoch RESULTS DIGITS EPOCHS [RANKS]. The peer is peers/epoch.py. With ranks the gradients are
// averaged by DDP, and numbers are given of the whole run, too: when it had ended, and its processor time.
#include <lockstep/lockstep.h>

#include <lockstep/launch/join.h>
#include <lockstep/launch/launch.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "results.h"

namespace {

namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct ClassifierImpl : ls::Module<ls::Example> {
  ClassifierImpl() { register_module("net", net); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto loss = F::cross_entropy(net->forward(batch.data), batch.target);
    step.log("train_loss", loss, {.prog_bar = true});
    return loss;
  }
  void validation_step(const ls::Example& batch, ls::StepContext& step) override {
    step.log("val_loss", F::cross_entropy(net->forward(batch.data), batch.target), {.sync_dist = true});
  }
  void on_train_epoch_start(ls::TrainContext& context) override {
    if (context.current_epoch() == 1) first_ns = bench::now_ns();
  }
  void on_train_end(ls::TrainContext&) override { last_ns = bench::now_ns(); }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::AdamW{.lr = 3e-4}}; }

  nn::Sequential net{nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 10)};
  std::int64_t first_ns = 0, last_ns = 0;
};
TORCH_MODULE(Classifier);

struct Job {
  const char* digits;
  int epochs;
  int ranks;
  std::filesystem::path run_dir;
};

void run_rank(const Job& job, const bench::Results& results) {
  torch::set_num_threads(1);
  auto [train, val] =
      ls::split(ls::csv_dataset(job.digits, {.label = -1, .scale = 1.0 / 16}), 0.8, {.seed = 0});
  ls::Trainer trainer({.max_epochs = job.epochs + 1,
                       .strategy = job.ranks > 1 ? "ddp" : "auto",
                       .devices = job.ranks,
                       .run = {.run_dir = job.run_dir}});
  Classifier model;
  trainer.fit(model, ls::loader(train, {.batch_size = 32, .shuffle = true}),
              ls::loader(val, {.batch_size = 256}));
  if (trainer.is_global_zero())
    results.add("epoch", static_cast<double>(model->last_ns - model->first_ns) / job.epochs);
}

double processor_ns(int whose) {
  rusage usage{};
  ::getrusage(whose, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_usec) * 1e3;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

int run_ranks(const Job& job, const bench::Results& results) {
  const int code =
      ls::launch_forked({.nprocs = job.ranks}, [&] { return ls::run_rank([&] { run_rank(job, results); }); });
  results.add_moment("run", bench::now_ns());
  results.add_processor_time("run_processor_time", processor_ns(RUSAGE_SELF) + processor_ns(RUSAGE_CHILDREN));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  const auto run_dir = std::filesystem::temp_directory_path() / ("bench_epoch." + std::to_string(getpid()));
  const bench::Results results(argv[1]);
  const Job job{argv[2], std::atoi(argv[3]), argc > 4 ? std::atoi(argv[4]) : 1, run_dir};
  const int code = job.ranks > 1 ? run_ranks(job, results) : (run_rank(job, results), 0);
  std::filesystem::remove_all(run_dir);
  return code;
}
