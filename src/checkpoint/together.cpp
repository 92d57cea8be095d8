#include "checkpoint/together.h"

#include <exception>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

constexpr char kDone = '+';
constexpr char kFailed = '-';

// What came of a step, for the others: how it ended, and a text.
std::string outcome_of(const std::function<std::string()>& step) try {
  return kDone + step();
} catch (const c10::Error& error) {
  return kFailed + std::string(error.what_without_backtrace());
} catch (const std::exception& error) {
  return kFailed + std::string(error.what());
} catch (...) {
  return kFailed + std::string("something that is no std::exception");
}

}  // namespace

std::string together(const Communicator& communicator, const std::filesystem::path& folder,
                     const std::function<std::string()>& step) {
  const auto outcomes = communicator.all_gather_bytes(outcome_of(step));
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].front() == kDone) continue;
    throw IoError("checkpoint", {.what = "checkpoint " + folder.string() + " was not written",
                                 .got = outcomes[rank].substr(1),
                                 .where = "rank " + std::to_string(rank)});
  }
  return outcomes.front().substr(1);
}

}  // namespace lockstep::detail
