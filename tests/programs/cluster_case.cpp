// A program with a cluster environment of its own, by the ways into the library: `cluster_case ENTRY [fail]
// [FLAGS]`.
//   run        ls::run(), whose body makes the environment
//   run_known  ls::run(), whose Program has it
//   run_fabric ls::run(), whose body gives it to a Fabric, which says its folder
//   run_rank, trainer, fabric, spawn
//   own_ranks  a Trainer whose environment starts no ranks, so that it starts two itself
// Variables MY_RANK, MY_SIZE and MY_PORT, or those of forked ranks, tell ranks their place. Each teardown()
// writes a line into torn_down.PID. With `fail` rank 1 throws.
#include <lockstep/cluster/torch_environments.h>
#include <lockstep/lockstep.h>
#include <unistd.h>

#include <fstream>
#include <iostream>

#include "program_case.h"

namespace ls = lockstep;

namespace cluster_case {

int number(const char* name, const char* other) {
  const char* text = std::getenv(name);
  if (text == nullptr) text = std::getenv(other);
  return text == nullptr ? 0 : std::stoi(text);
}

void note_teardown() { std::ofstream("torn_down." + std::to_string(::getpid()), std::ios::app) << "once\n"; }

struct Mine final : ls::ExternalEnvironment {
  Mine()
      : ExternalEnvironment("mine", "my scheduler",
                            {.world_size = number("MY_SIZE", "WORLD_SIZE"),
                             .global_rank = number("MY_RANK", "RANK"),
                             .local_rank = number("MY_RANK", "RANK"),
                             .local_world_size = number("MY_SIZE", "WORLD_SIZE"),
                             .main_address = "127.0.0.1",
                             .main_port = number("MY_PORT", "MASTER_PORT")}) {}
  void teardown() override { note_teardown(); }
};

class StartsNone final : public ls::ClusterEnvironment {
 public:
  std::string name() const override { return "starts none"; }
  bool creates_processes_externally() const override { return usual_.creates_processes_externally(); }
  std::string main_address() const override { return usual_.main_address(); }
  int main_port() const override { return usual_.main_port(); }
  int world_size() const override { return usual_.world_size(); }
  void set_world_size(int size) override { usual_.set_world_size(size); }
  int global_rank() const override { return usual_.global_rank(); }
  void set_global_rank(int rank) override { usual_.set_global_rank(rank); }
  int local_rank() const override { return usual_.local_rank(); }
  int node_rank() const override { return usual_.node_rank(); }
  void teardown() override { note_teardown(); }

 private:
  ls::LightningEnvironment usual_;
};

struct TinyImpl : ls::Module<ls::Example> {
  explicit TinyImpl(bool fails) : fails_(fails) { register_module("net", net); }
  torch::Tensor training_step(const ls::Example& batch, ls::StepContext& step) override {
    if (fails_ && step.global_rank() == 1) throw std::runtime_error("the disk is full");
    return net->forward(batch.data).pow(2).mean();
  }
  ls::Optimizers configure_optimizers() override { return {.optimizer = ls::SGD{.lr = 0.1}}; }
  torch::nn::Linear net{2, 1};

 private:
  bool fails_;
};
TORCH_MODULE(Tiny);

void train(ls::TrainerOptions options, bool fails) {
  options.max_epochs = 1;
  options.enable_progress_bar = false;
  ls::Trainer trainer(std::move(options));
  trainer.fit(Tiny(fails), ls::loader(ls::tensor_dataset(torch::ones({8, 2})), {.batch_size = 2}));
  trainer.print("world of " + std::to_string(trainer.world_size()));
}

void use_fabric(bool fails, ls::FabricOptions options = {}) {
  options.strategy = "ddp";
  options.cluster_environment = std::make_shared<Mine>();
  ls::Fabric fabric(std::move(options));
  fabric.launch();
  fabric.barrier();
  if (fails && fabric.global_rank() == 1) throw std::runtime_error("the disk is full");
  fabric.barrier();
  std::cout << "folder " + fabric.run_dir().string() + "\n";
}

int start(int argc, char** argv) {
  const std::string entry = argc > 1 ? argv[1] : "";
  const bool fails = argc > 2 && std::string(argv[2]) == "fail";
  const int skipped = fails ? 2 : 1;
  argv[skipped] = argv[0];
  const auto run = [&](const ls::Program& program) {
    return ls::run(argc - skipped, argv + skipped, program, [&](ls::Cli& cli) {
      auto options = cli.trainer();
      if (options.plugins.empty()) options.plugins = {std::make_shared<Mine>()};
      train(std::move(options), fails);
    });
  };
  if (entry == "run") return run({.name = "case"});
  if (entry == "run_fabric")
    return ls::run(argc - skipped, argv + skipped, {.name = "case", .fabric = ls::FabricOptions{}},
                   [&](ls::Cli& cli) { use_fabric(fails, cli.fabric()); });
  if (entry == "run_known") return run({.name = "case", .trainer = {.plugins = {std::make_shared<Mine>()}}});
  if (entry == "run_rank")
    return ls::run_rank([&] { train({.plugins = {std::make_shared<Mine>()}}, fails); });
  if (entry == "trainer") train({.plugins = {std::make_shared<Mine>()}}, fails);
  if (entry == "own_ranks") train({.devices = 2, .plugins = {std::make_shared<StartsNone>()}}, fails);
  if (entry == "fabric") use_fabric(fails);
  if (entry == "spawn")
    return ls::run_rank([&] { ls::spawn([&](int) { use_fabric(fails); }, {.nprocs = 2}); });
  return 0;
}

const ProgramCase kCase{"cluster_case", start};

}  // namespace cluster_case
