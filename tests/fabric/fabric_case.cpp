// What a Fabric does on real ranks: `fabric_case CASE --fabric.devices N`, started by fabric_test.py. A case
// that does not hold throws.
#include <map>

#include "cases.h"

namespace ls = lockstep;
using namespace fabric_case;

namespace {

const std::map<std::string, void (*)(ls::Fabric&)> kCases{
    {"properties", properties},
    {"collectives", collectives},
    {"rank_zero_first", rank_zero_first},
    {"setup_forms", setup_forms},
    {"optimizers_of_ranks_differ", optimizers_of_ranks_differ},
    {"deferred_models", deferred_models},
    {"models_come_and_go", models_come_and_go},
    {"equals_one_process", equals_one_process},
    {"clipping", clipping},
    {"accumulation", accumulation},
    {"precision", precision},
    {"scaled_gradients", scaled_gradients},
    {"overflows", overflows},
    {"overflow_in_one_shard", overflow_in_one_shard},
    {"no_gradients", no_gradients},
    {"scaled_together", scaled_together},
    {"scaler_state", scaler_state},
    {"one_element_type", one_element_type},
    {"gan", gan},
    {"several_models", several_models},
    {"towers", towers},
    {"changed_models", changed_models},
    {"released_and_frozen", released_and_frozen},
    {"released_with_state_on_disk", released_with_state_on_disk},
    {"released_and_converted", released_and_converted},
    {"released_amid_accumulation", released_amid_accumulation},
    {"lost_losses", lost_losses},
    {"several_optimizers", several_optimizers},
    {"compression", compression},
    {"loaders", loaders},
    {"streams", streams},
    {"going_on_after_errors", going_on_after_errors},
    {"callbacks_and_loggers", callbacks_and_loggers},
    {"equals_trainer", equals_trainer},
    {"save_and_load", save_and_load}};

// Ranks that nobody has started and that no ls::run() knows of.
int run_in_code(bool launches) {
  ls::Fabric fabric({.devices = 2});
  if (!launches) {
    require_error([&] { fabric.setup(Net()); }, "before launch()");
    return 0;
  }
  return fabric.launch([](ls::Fabric& launched) {
    collectives(launched);
    launched.print("world size " + std::to_string(launched.world_size()));
    return 0;
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  if (how == "in_code" || how == "before_launch") return run_in_code(how == "in_code");
  ls::Program program{.verbs = {}, .fabric = ls::FabricOptions{.strategy = ls::Ddp{}}};
  for (const auto& [name, body] : kCases) program.verbs.push_back(name);
  return ls::run(argc, argv, program, [](ls::Cli& cli) {
    ls::Fabric fabric(cli.fabric());
    fabric.launch();
    kCases.at(cli.verb())(fabric);
  });
}
