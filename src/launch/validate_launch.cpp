#include "launch/validate_launch.h"

#include <limits>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/launch/join.h>

#include "base/sockets.h"

namespace lockstep {
namespace {

void require(bool holds, const std::string& what, const std::string& expected, const std::string& got,
             const std::string& hint = {}) {
  if (holds) return;
  throw ConfigError("launch", {.what = what, .expected = expected, .got = got, .hint = hint});
}

void require_between(const std::string& field, int value, int min, int max) {
  require(value >= min && value <= max, field, std::to_string(min) + ".." + std::to_string(max),
          std::to_string(value));
}

}  // namespace

LaunchOptions launch::settled(LaunchOptions options) {
  require_between("num_nodes", options.num_nodes, 1, std::numeric_limits<int>::max());
  require_between("nprocs", options.nprocs, 1, std::numeric_limits<int>::max() / options.num_nodes);
  require_between("node_rank", options.node_rank, 0, options.num_nodes - 1);
  require_between("main_port", options.main_port, options.num_nodes > 1 ? 1 : 0, 65'535);
  options.main_address = without_brackets(options.main_address);
  if (options.main_address == LaunchOptions().main_address) options.main_address = loopback_address();
  return options;
}

void launch::refuse_in_rank() {
  const std::string variable = env::get("LOCAL_RANK") ? "LOCAL_RANK" : "RANK";
  require(!started_by_launcher(), "ranks cannot be started here", "a process that is no rank",
          variable + "=" + env::get(variable).value_or(""), "a launcher has started this process already");
}

}  // namespace lockstep
