// Linked into a program, this makes its option accelerator take "sim". What streams were not ordered for is
// printed when the process ends.
#include <cstdio>

#include "sim/runtime.h"
#include "sim/sim_accelerator.h"

namespace lockstep::sim {
namespace {

struct Registered {
  Registered() { register_sim(); }
  ~Registered() {
    if (!is_installed()) return;
    for (const auto& report : take_reports()) std::fprintf(stderr, "sim: %s\n", report.c_str());
  }
};

[[maybe_unused]] const Registered kRegistered;

}  // namespace
}  // namespace lockstep::sim
