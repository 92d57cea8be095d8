#include "base/failure_place.h"

#include <algorithm>
#include <deque>
#include <mutex>

namespace lockstep::detail {
namespace {

// An exception is kept, so that no later one can have its address.
struct PlacedFailure {
  std::exception_ptr exception;
  std::string place;
  std::string detail;
};

struct PlacedFailures {
  std::mutex mutex;
  std::deque<PlacedFailure> latest;
};

constexpr std::size_t kPlacesKept = 16;  // of ranks that are threads of one process, each may have one

// It is never destroyed: a thread may fail while the process ends.
PlacedFailures& placed_failures() {
  static auto* const all = new PlacedFailures;
  return *all;
}

PlacedFailure* find_placed(PlacedFailures& all) {
  const auto current = std::current_exception();
  const auto found = std::ranges::find(all.latest, current, &PlacedFailure::exception);
  return found == all.latest.end() ? nullptr : &*found;
}

}  // namespace

void note_failure_place(std::string_view place) {
  auto& all = placed_failures();
  const std::scoped_lock lock(all.mutex);
  if (find_placed(all) != nullptr) return;
  all.latest.push_back(
      {.exception = std::current_exception(), .place = std::string(place), .detail = std::string()});
  if (all.latest.size() > kPlacesKept) all.latest.pop_front();
}

void note_failure_detail(std::string_view detail) {
  auto& all = placed_failures();
  const std::scoped_lock lock(all.mutex);
  auto* const found = find_placed(all);
  if (found != nullptr && found->detail.empty()) found->detail = detail;
}

std::string failure_place() {
  auto& all = placed_failures();
  const std::scoped_lock lock(all.mutex);
  const auto* const found = find_placed(all);
  return found == nullptr ? "" : "; in " + found->place + found->detail;
}

}  // namespace lockstep::detail
