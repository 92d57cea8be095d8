// A program whose code gives what only code can: loggers, a profiler, a comm hook, and several Trainers.
//   fit    one Trainer with parts of the program's own, which write into --case.own
//   two    two Trainers, the second of which goes on where the first has ended
//   throw  a callback throws what is no std::exception
#include <fstream>

#include <lockstep/lockstep.h>

#include "program_case.h"

namespace ls = lockstep;
namespace fs = std::filesystem;

namespace trainers_case {

struct TinyImpl : ls::Module<ls::Example> {
  TinyImpl() { register_module("net", net); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    const auto loss = net->forward(batch.data).pow(2).mean();
    step.log("loss", loss, {.on_epoch = true});
    return loss;
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::SGD{.lr = 0.1}}; }
  torch::nn::Linear net{2, 1};
};
TORCH_MODULE(Tiny);

struct ThrowsANumber final : ls::Callback {
  void on_train_batch_end(ls::StepContext&, const ls::TrainOutput&) override { throw 42; }
};

struct CaseOptions {
  fs::path own = "own";
};

void describe(ls::OptionVisitor& v, CaseOptions& o) {
  v.field("own", o.own, "Where the program's own parts write");
}

// Leaves a file behind where it is used.
ls::CommHook noting_hook(const fs::path& file) {
  return [inner = ls::allreduce_hook(), file](const ls::GradBucket& bucket, const ls::Communicator& comm) {
    std::ofstream(file) << "used\n";
    return inner(bucket, comm);
  };
}

ls::TrainerOptions own_parts(const fs::path& folder) {
  fs::create_directories(folder);
  return {.max_epochs = 1,
          .strategy = ls::Ddp{.comm_hook = noting_hook(folder / "hook")},
          .logger = {std::make_shared<ls::JsonlLogger>(folder), "csv"},
          .profiler = std::make_shared<ls::SimpleProfiler>(
              ls::SimpleProfilerOptions{.dirpath = folder, .filename = "times"})};
}

void fit(ls::TrainerOptions options, const std::string& ckpt_path = {}) {
  ls::Trainer trainer(std::move(options));
  trainer.fit(Tiny(), ls::loader(ls::tensor_dataset(torch::ones({8, 2})), {.batch_size = 2}), {}, ckpt_path);
}

int start(int argc, char** argv) {
  CaseOptions own;
  return ls::run(argc, argv, {.verbs = {"fit", "two", "throw"}, .options = {ls::options("case", own)}},
                 [&](ls::Cli& cli) {
                   if (cli.verb() == "fit") return fit(cli.trainer(own_parts(own.own)));
                   auto options = cli.trainer({.max_epochs = 1, .log_every_n_steps = 1});
                   if (cli.verb() == "throw") options.callbacks = {std::make_shared<ThrowsANumber>()};
                   fit(options);
                   options.max_epochs = 3;
                   fit(options, "last");
                 });
}

const ProgramCase kCase{"trainers_case", start};

}  // namespace trainers_case
