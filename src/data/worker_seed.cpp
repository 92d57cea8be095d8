#include <lockstep/data/worker_seed.h>

#include <string>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

using Wide = unsigned __int128;

void require_16_bits(const char* what, int value) {
  if (value >= 0 && value <= 0xFFFF) return;
  throw ConfigError("data", {.what = std::string("worker_seed: ") + what + " is out of range",
                             .expected = "0 to 65535",
                             .got = std::to_string(value)});
}

}  // namespace

// lightning/fabric/utilities/seed.py: the finalizer of MurmurHash3, then Knuth's linear congruential
// generator.
std::uint64_t worker_seed(std::uint64_t seed, int worker, int rank) {
  require_16_bits("worker", worker);
  require_16_bits("rank", rank);
  // Python's numbers have no end: bits above 64 count in the first shift.
  Wide whole = Wide{seed} << 32 | static_cast<Wide>(worker) << 16 | static_cast<Wide>(rank);
  whole ^= whole >> 33;
  auto mixed = static_cast<std::uint64_t>(whole) * 0xFF51AFD7ED558CCDU;
  mixed ^= mixed >> 33;
  mixed *= 0xC4CEB9FE1A85EC53U;
  mixed ^= mixed >> 33;
  return mixed * 6364136223846793005U + 1;
}

}  // namespace lockstep
