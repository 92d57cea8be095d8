// Whether runs that are compared have had the same seed: what differs between them may be chance.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/format.h"
#include "report/curve.h"
#include "report/page.h"

namespace lockstep::detail {
namespace {

// "null" where it was not given; nothing for runs without a config.yaml.
std::optional<std::string> seed_of(const RunRecord& run) {
  if (run.config.empty()) return std::nullopt;
  const auto key =
      std::ranges::find(run.config, "seed_everything", &std::pair<std::string, std::string>::first);
  return key == run.config.end() ? "null" : key->second;
}

}  // namespace

std::string note_on_seeds(ComparedRuns runs) {
  std::vector<std::string> unseeded;
  std::set<std::string> seeds;
  for (const auto& run : runs) {
    const auto seed = seed_of(*run.record);
    if (!seed) continue;
    seeds.insert(*seed);
    if (*seed == "null") unseeded.push_back(run.name);
  }
  if (runs.size() < 2 || seeds.empty() || (seeds.size() == 1 && unseeded.empty())) return "";
  const auto chance = std::string(
      ": what differs between these runs may be chance. Runs with one --seed_everything, and "
      "otherwise the same flags, have the same bits");
  if (!unseeded.empty()) return "Not seeded: " + lockstep::joined(unseeded) + chance + ".";
  return "Seeded differently (" + lockstep::joined(std::vector<std::string>(seeds.begin(), seeds.end())) +
         ")" + chance + ".";
}

}  // namespace lockstep::detail
