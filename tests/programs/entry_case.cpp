// The ways into the library, one by one: `entry_case ENTRY [WHEN [RANKS]]`. Says the size of the world. WHEN:
// before or after: rank 1 throws then: before or after the ranks have met;
// gone: rank 1 ends with code 0 before they meet;
// echo: of run_rank and group: rank 0 loses rank 1, which is killed.
// RANKS is how many the program starts itself; else others have started them.
#include <lockstep/lockstep.h>

#include <csignal>
#include <iostream>
#include <thread>

#include "program_case.h"

namespace ls = lockstep;

namespace entry_case {

struct TinyImpl : ls::Module<ls::Example> {
  TinyImpl() { register_module("net", net); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    std::cout << "out" << std::endl;
    std::cerr << "err" << std::endl;
    if (fails && step.global_rank() == 1) throw std::runtime_error("the disk is full");
    return net->forward(batch.data).pow(2).mean();
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::SGD{.lr = 0.1}}; }
  torch::nn::Linear net{2, 1};
  bool fails = false;
};
TORCH_MODULE(Tiny);

struct Case {
  std::string entry;
  std::string when;
  std::optional<int> ranks;
};

void fail_at(const Case& chosen, const std::string& moment, const std::string& rank) {
  if (chosen.when == "gone" && rank == "1") std::exit(0);
  if (chosen.when == moment && rank == "1") throw std::runtime_error("the disk is full");
}

void tell(int world_size) { std::cout << "world of " + std::to_string(world_size) + "\n" << std::flush; }

void train(const Case& chosen, ls::TrainerOptions options) {
  fail_at(chosen, "before", ls::told_rank().value_or(""));
  if (chosen.ranks) options.devices = *chosen.ranks;
  options.max_epochs = 1;
  options.enable_progress_bar = false;
  options.enable_checkpointing = false;
  ls::Trainer trainer(options);
  Tiny model;
  model->fails = chosen.when == "after";
  trainer.fit(model, ls::loader(ls::tensor_dataset(torch::ones({8, 2})), {.batch_size = 2}));
  tell(trainer.world_size());
}

void use_fabric(const Case& chosen) {
  fail_at(chosen, "before", ls::told_rank().value_or(""));
  ls::FabricOptions options{.strategy = ls::Ddp{}};
  if (chosen.ranks) options.devices = *chosen.ranks;
  ls::Fabric fabric(options);
  fabric.launch();
  fabric.barrier();
  fail_at(chosen, "after", std::to_string(fabric.global_rank()));
  fabric.barrier();
  tell(fabric.world_size());
}

// Rank 1 is killed, and is seen to end after rank 0, which has lost it.
void die_after_its_echo(int rank) {
  if (rank == 0) throw ls::PeerLost("comm", {.what = "rank 1 went away"});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::raise(SIGKILL);
}

void join(const Case& chosen) {
  fail_at(chosen, "before", ls::told_rank().value_or(""));
  const auto group = ls::init_process_group();
  group.barrier();
  fail_at(chosen, "after", std::to_string(group.rank()));
  if (chosen.when == "echo") die_after_its_echo(group.rank());
  group.barrier();
  tell(group.size());
}

int start(int argc, char** argv) {
  const Case chosen{.entry = argc > 1 ? argv[1] : "",
                    .when = argc > 2 ? argv[2] : "",
                    .ranks = argc > 3 ? std::optional(std::stoi(argv[3])) : std::nullopt};
  if (chosen.entry == "trainer") {
    train(chosen, {});
  } else if (chosen.entry == "fabric") {
    use_fabric(chosen);
  } else if (chosen.entry == "group") {
    join(chosen);
  } else if (chosen.entry == "run_rank") {
    return ls::run_rank([&] { join(chosen); });
  } else if (chosen.entry == "spawn") {
    return ls::run_rank(
        [&] { ls::spawn([&](int) { join(chosen); }, std::tuple(), {.nprocs = chosen.ranks.value_or(1)}); });
  } else if (chosen.entry == "run") {
    ls::Program program;
    if (chosen.ranks) program.trainer.devices = *chosen.ranks;
    return ls::run(1, argv, program, [&](ls::Cli& cli) { train(chosen, cli.trainer()); });
  } else if (chosen.entry == "run_fabric") {
    ls::Program program{.fabric = ls::FabricOptions{}};
    if (chosen.ranks) program.fabric->devices = *chosen.ranks;
    return ls::run(1, argv, program, [&](ls::Cli&) { use_fabric(chosen); });
  }
  return 0;
}

const ProgramCase kCase{"entry_case", start};

}  // namespace entry_case
