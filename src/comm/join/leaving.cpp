#include "comm/join/leaving.h"

#include <atomic>

namespace lockstep::detail {
namespace {

std::atomic<void (*)()> leaving_act{nullptr};

}  // namespace

void set_leaving_act(void (*act)()) { leaving_act = act; }

void act_on_leaving() {
  if (auto* const act = leaving_act.load()) act();
}

}  // namespace lockstep::detail
