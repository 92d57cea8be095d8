#include "train/options/accumulation_changes.h"

#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

namespace lockstep::detail {
namespace {

constexpr const char* kKey = "accumulate_grad_batches";

AccumulationSchedule schedule_in(const StateTree& tree, const char* name) {
  const auto text = tree.get<std::string>(name);
  const auto schedule = OptionType<AccumulationSchedule>::parse(text);
  if (schedule) return *schedule;
  throw CheckpointError("train", {.what = "state " + tree.path() + "/" + name,
                                  .expected = OptionType<AccumulationSchedule>::accepted(),
                                  .got = text});
}

}  // namespace

void forget_accumulation(RunSetup& setup) {
  setup.options.accumulate_grad_batches = setup.accumulation.given;
  setup.accumulation.next.reset();
}

void keep_accumulation(const RunSetup& setup, StateTree& loops) {
  const auto& now = setup.options.accumulate_grad_batches;
  const auto& [given, first, next] = setup.accumulation;
  if (now == first && !next) return;
  StateTree changes;
  changes.set("first", first.print());
  changes.set("now", now.print());
  if (next) changes.set("next", next->print());
  loops.set(kKey, std::move(changes));
}

void adopt_accumulation(RunSetup& setup, const StateTree& loops) {
  if (!loops.contains(kKey)) return;
  const auto& changes = loops.get<StateTree>(kKey);
  const auto first = schedule_in(changes, "first");
  const auto now = schedule_in(changes, "now");
  auto& current = setup.options.accumulate_grad_batches;
  if (current != first) {
    if (setup.is_global_zero())
      log_warning("accumulate_grad_batches was " + first.print() + " when the run began, " + now.print() +
                  " in the checkpoint, as callbacks had changed it, and is " + current.print() + " now");
    return;
  }
  current = now;
  if (changes.contains("next")) setup.accumulation.next = schedule_in(changes, "next");
}

}  // namespace lockstep::detail
