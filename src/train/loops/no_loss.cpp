#include "train/loops/no_loss.h"

#include <limits>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

namespace lockstep::detail {

std::string place_of(const StepContext& step) {
  return "rank " + std::to_string(step.global_rank()) + ", epoch " + std::to_string(step.current_epoch()) +
         ", batch " + std::to_string(step.batch_idx());
}

double leave_out_loss(RunState& state, const char* what, const StepContext& step) {
  if (state.communicator().size() > 1) {
    throw ConfigError("train",
                      {.what = what,
                       .expected = "a loss in every batch of every rank, since gradients are averaged",
                       .got = "none",
                       .where = place_of(step),
                       .hint = "a batch that is to add nothing can have a loss of weight 0"});
  }
  if (!std::exchange(state.has_warned_of_no_loss, true))
    log_warning(std::string(what) + " (" + place_of(step) + "); it adds nothing to the gradients");
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace lockstep::detail
