#include "strategy/same_optimizer.h"

#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>

#include "parallel/module_states.h"

namespace lockstep::detail {
namespace {

std::string text_of(double value) { return OptionType<double>::print(value); }

std::string describe(const Optimizer::Group& group, std::size_t number) {
  auto text = "group " + std::to_string(number);
  if (!group.pattern.empty()) text += " (" + group.pattern + ")";
  text += ": lr " + text_of(group.lr) + ", weight_decay " + text_of(group.weight_decay);
  if (group.momentum) text += ", momentum " + text_of(*group.momentum);
  if (group.betas) text += ", betas " + text_of((*group.betas)[0]) + " and " + text_of((*group.betas)[1]);
  return text;
}

std::vector<std::string> settings_of(const Optimizer& optimizer) {
  std::vector lines{std::string(optimizer.name())};
  for (const auto& group : optimizer.groups()) lines.push_back(describe(group, lines.size() - 1));
  return lines;
}

}  // namespace

void require_same_optimizer(const Optimizer& optimizer, const Communicator& comm) {
  if (comm.size() == 1) return;
  require_equal_across_ranks(
      settings_of(optimizer), comm,
      {.what = "the ranks' optimizers differ",
       .hint = "every rank must make the same optimizer: all of them step with the same "
               "gradients, and other settings would give other weights"});
}

void warn_of_other_settings(const Optimizer& optimizer, const Communicator& comm) {
  if (comm.size() == 1) return;
  try {
    require_equal_across_ranks(
        settings_of(optimizer), comm,
        {.what = "the ranks' optimizers have come to other settings, and so will their weights",
         .hint = "schedules must step alike on all ranks: give them metrics that are reduced over ranks"});
  } catch (const CollectiveMismatch& difference) {
    if (comm.rank() == 0) warn_once("strategy.other_settings", difference.what());
  }
}

}  // namespace lockstep::detail
