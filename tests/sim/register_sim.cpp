// Linked into a program, this makes its option accelerator take "sim". What streams were not ordered for is
// printed when the process ends, and with SIM_PRINTS_SYNCS=1 in the environment how often the host waited,
// and for what.
#include <cstdio>
#include <map>
#include <string>

#include <lockstep/base/env.h>

#include "sim/runtime.h"
#include "sim/sim_accelerator.h"

namespace lockstep::sim {
namespace {

struct Registered {
  Registered() { register_sim(); }
  ~Registered() {
    if (!is_installed()) return;
    if (env::get("SIM_PRINTS_SYNCS") != "1") return;
    std::map<std::string, int> counts;
    for (const auto& name : take_host_syncs()) ++counts[name];
    for (const auto& [name, count] : counts) std::fprintf(stderr, "host sync: %s %d\n", name.c_str(), count);
  }
};

[[maybe_unused]] const Registered kRegistered;

}  // namespace
}  // namespace lockstep::sim
