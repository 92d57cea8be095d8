// What the four programs share: their flags, and how their ranks are started.
#pragma once

#include <lockstep/lockstep.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <tuple>

namespace tutorial {

namespace ls = lockstep;

/// Writes the flags of the command line into the options of `tree`; --help ends the program.
inline void apply_command_line(int argc, char** argv, const ls::OptionTree& tree) {
  const auto program = std::filesystem::path(argv[0]).filename().string();
  const auto line = ls::parse_command_line(argc, argv, tree, {.program = program});
  if (line.text_to_print) {
    std::cout << *line.text_to_print;
    std::exit(0);
  }
  tree.apply(line.assignments);
  tree.validate();
}

/// The flags of the command line, as argparse reads them.
template <ls::Described Args>
Args parse_args(int argc, char** argv) {
  Args args;
  ls::OptionTree tree;
  tree.add("", args);
  apply_command_line(argc, argv, tree);
  return args;
}

/// The flags of the programs that spawn their processes.
struct SpawnArgs {
  std::optional<int> rank = {};
  int world_size = 0;
};

inline void describe(ls::OptionVisitor& v, SpawnArgs& args) {
  v.field("rank", args.rank, "Be this rank, started by hand, and spawn nothing", ls::at_least(0));
  v.field("world-size", args.world_size, "Number of processes", ls::at_least(1));
}

/// And of those that train.
struct TrainArgs : SpawnArgs {
  int num_iter = 10;
  bool check = false;
};

inline void describe(ls::OptionVisitor& v, TrainArgs& args) {
  describe(v, static_cast<SpawnArgs&>(args));
  v.field("num-iter", args.num_iter, "Training steps", ls::at_least(0));
  v.field("check", args.check, "Compare the weights of all ranks at the end");
}

/// Calls fn(rank, fn_args...) in args.world_size processes, or as the one rank that the user starts by hand.
template <class Fn, class... FnArgs>
void start(const SpawnArgs& args, const Fn& fn, const std::tuple<FnArgs...>& fn_args) {
  if (!args.rank) return ls::spawn(fn, fn_args, {.nprocs = args.world_size});
  std::apply(fn, std::tuple_cat(std::tuple(*args.rank), fn_args));
}

/// Rank 0 prints whether all ranks have the same weights, to the last bit.
inline void print_comparison(const ls::Communicator& group, const std::vector<torch::Tensor>& params) {
  const torch::NoGradGuard no_grad;
  const auto own = torch::nn::utils::parameters_to_vector(params);
  const auto all = torch::empty({group.size(), own.numel()});
  group.all_gather(all, own);
  if (group.rank() != 0) return;
  const bool are_equal = all.eq(own).all().item<bool>();
  std::cout << "Weights are " << (are_equal ? "equal" : "NOT equal") << " on all ranks; their norm is "
            << own.norm().item<double>() << std::endl;
}

}  // namespace tutorial
