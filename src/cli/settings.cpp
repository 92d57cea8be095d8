#include "cli/settings.h"

#include <algorithm>

namespace lockstep::detail {

OptionTree tree_of(Program& program, Settings& settings) {
  OptionTree tree;
  if (program.fabric) {
    tree.add("", settings.fabric.run, "the run");
    tree.add("fabric", settings.fabric, "the Fabric");
  } else {
    tree.add("", settings.run, "the run");
    tree.add("trainer", settings.trainer, "the Trainer");
  }
  if (std::ranges::count(program.verbs, "tune") > 0) tree.add("tune", settings.tune, "the verb tune");
  for (const auto& options : program.options) options.add_to(tree);
  return tree;
}

}  // namespace lockstep::detail
