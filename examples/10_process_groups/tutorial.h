// What the four programs share: their flags, and how their ranks are started.
#pragma once

#include <lockstep/lockstep.h>

#include <algorithm>
#include <concepts>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <tuple>

namespace tutorial {

namespace ls = lockstep;

inline std::string accepted_by(const ls::OptionTree& tree, const std::string& key) {
  for (const auto& option : tree.list())
    if (option.key == key) return option.type + " " + option.accepted;
  return {};
}

/// Writes the flags of the command line into the options of `tree`; --help ends the program. `required` names
/// a flag that must be among them.
inline void apply_command_line(int argc, char** argv, const ls::OptionTree& tree,
                               const std::string& required = {}) {
  const auto program = std::filesystem::path(argv[0]).filename().string();
  const auto line = ls::parse_command_line(argc, argv, tree, {.program = program});
  if (line.text_to_print) {
    std::cout << *line.text_to_print;
    std::exit(0);
  }
  tree.apply(line.assignments);
  const auto is_it = [&](const ls::Assignment& assignment) { return assignment.key == required; };
  if (!required.empty() && std::ranges::none_of(line.assignments, is_it))
    throw ls::ConfigError(program, {.what = "flag --" + required + " is required",
                                    .expected = accepted_by(tree, required),
                                    .got = "none"});
  tree.validate();
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

/// The flags of the command line, as argparse reads them.
template <ls::Described Args>
Args parse_args(int argc, char** argv) {
  Args args;
  ls::OptionTree tree;
  tree.add("", args);
  apply_command_line(argc, argv, tree, std::derived_from<Args, SpawnArgs> ? "world-size" : "");
  return args;
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
