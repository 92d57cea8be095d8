#include "comm/comm_case_phases.h"

#include <cstdint>
#include <stdexcept>
#include <utility>

#include <lockstep/base/export.h>

#include "comm/shared_memory/flag.h"
#include "support/next_function.h"

namespace lockstep::testing {
namespace {

// The phases at whose beginning and end it is to raise its next flag.
struct Post {
  Phase before, after;
};
constexpr Post kPosts[] = {{Phase::kNothing, Phase::kAnnounced},
                           {Phase::kAnnounced, Phase::kStaged},
                           {Phase::kSummed, Phase::kFinished}};

Phase awaited = Phase::kNothing;
std::function<void()> what_then;
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

void at_phase(Phase phase, std::function<void()> misdeed) {
  awaited = phase;
  what_then = std::move(misdeed);
  posts = 0;
}

}  // namespace lockstep::testing

namespace lockstep::detail {

// In place of the library's.
LOCKSTEP_API void post(Flag& flag, std::uint64_t value) {
  const auto& now = testing::kPosts[testing::posts++ % std::size(testing::kPosts)];
  testing::come_to(now.before);
  testing::post_of_library()(flag, value);
  testing::come_to(now.after);
}

}  // namespace lockstep::detail
