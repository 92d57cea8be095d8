// The bodies that LOCKSTEP_RANK_BODY registered before main().
#include <map>

#include <lockstep/base/error.h>

#include "testing/forked_rank.h"

namespace lockstep::testing {
namespace {

// Names may come twice: that is found out where an error can be reported.
std::multimap<std::string, RankBody>& bodies() {
  static std::multimap<std::string, RankBody> all;
  return all;
}

std::string known_names() {
  std::string names;
  for (const auto& [name, body] : bodies()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

RegisteredRankBody::RegisteredRankBody(const char* name, RankBody body) { bodies().emplace(name, body); }

RankBody find_rank_body(const std::string& name) {
  const auto count = bodies().count(name);
  if (count == 1) return bodies().find(name)->second;
  throw ConfigError("testing", {.what = "fork_ranks: body \"" + name + "\" is " +
                                        (count == 0 ? "unknown" : "registered more than once"),
                                .expected = known_names(),
                                .hint = "define it once by LOCKSTEP_RANK_BODY(" + name + ")"});
}

}  // namespace lockstep::testing
