#include "comm/comm_case_phases.h"

#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>

#include "comm/shared_memory/flag.h"
#include "support/next_function.h"

namespace lockstep::testing {
namespace {

// The phases at whose beginning and end it is to raise its next flag.
struct Post {
  Phase before, after;
};
constexpr Post kAnnouncing{Phase::kNothing, Phase::kAnnounced};

const std::vector<Post>& posts_of(Part part) {
  static const std::vector<Post> kInSegments = {
      kAnnouncing, {Phase::kAnnounced, Phase::kStaged}, {Phase::kSummed, Phase::kFinished}};
  static const std::vector<Post> kOfFirst = {kAnnouncing, {Phase::kCollected, Phase::kPassedOn}};
  static const std::vector<Post> kOfOther = {kAnnouncing};
  return part == Part::kInSegments ? kInSegments : part == Part::kFirstOfHost ? kOfFirst : kOfOther;
}

Phase awaited = Phase::kNothing;
std::function<void()> what_then;
Part own_part = Part::kInSegments;
std::size_t posts = 0;

void come_to(Phase phase) {
  if (what_then && phase == awaited) std::exchange(what_then, {})();
}

using PostFunction = void (*)(detail::Flag&, std::uint64_t);

PostFunction post_of_library() {
  static const auto kFound = test::next_function<PostFunction>("_ZN8lockstep6detail4postERNS0_4FlagEm");
  if (kFound == nullptr) throw std::runtime_error("the library has no post()");
  return kFound;
}

}  // namespace

void at_phase(Phase phase, Part part, std::function<void()> misdeed) {
  awaited = phase;
  own_part = part;
  what_then = std::move(misdeed);
  posts = 0;
}

}  // namespace lockstep::testing

namespace lockstep::detail {

// In place of the library's.
LOCKSTEP_API void post(Flag& flag, std::uint64_t value) {
  const auto& all = testing::posts_of(testing::own_part);
  const auto& now = all[testing::posts++ % all.size()];
  testing::come_to(now.before);
  testing::post_of_library()(flag, value);
  testing::come_to(now.after);
}

}  // namespace lockstep::detail
