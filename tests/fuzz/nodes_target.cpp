#include <lockstep/base/error.h>

#include "cluster/variables.h"
#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

void run_nodes(std::span<const std::byte> input) {
  try {
    const auto hosts =
        cluster::expand_node_list("LIST", {reinterpret_cast<const char*>(input.data()), input.size()});
    expect(!hosts.empty() && hosts.size() <= cluster::kMaxRanks, "gave too many hosts or none");
  } catch (const ConfigError&) {
  }
}

}  // namespace

Target nodes_target() {
  return {.name = "nodes",
          .seeds = {"n[08-10,3],login", "r[1-2]n[7-8]-ib", "n[18446744073709551615]", "n[0001-0300]"},
          .tokens = {"[", "]", ",", "-", " ", "0", "00", "7", "300", "18446744073709551614",
                     "18446744073709551615", "18446744073709551616", "9223372036854775807", "n", "[1-2]"},
          .memory_bytes = std::size_t{1} << 30,  // a million hosts of long names, twice
          .memory_per_byte = 64,
          .run = run_nodes};
}

}  // namespace lockstep::fuzz
