#include "checkpoint/together.h"

#include <exception>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "formats/tagged_folder.h"

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

// The tag in `folder` that is meant; nothing where it is `folder` itself.
std::string tag_in(const std::filesystem::path& folder, const std::string& tag) {
  const auto found = tagged_folder(folder, tag);
  return found == folder ? std::string() : found.filename().string();
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

std::filesystem::path agreed_folder(const Communicator& communicator, const std::filesystem::path& folder,
                                    const std::string& tag) {
  std::exception_ptr failure;
  std::string found;
  if (communicator.rank() == 0) {
    try {
      found = kDone + tag_in(folder, tag);
    } catch (const std::exception& error) {
      failure = std::current_exception();
      found = kFailed + std::string(error.what());
    }
  }
  found = communicator.broadcast_bytes(found);
  if (failure) std::rethrow_exception(failure);
  if (found.front() == kFailed)
    throw CheckpointError("checkpoint", {.what = "checkpoint " + folder.string() + " cannot be used",
                                         .got = found.substr(1),
                                         .where = "rank 0"});
  return found.size() == 1 ? folder : folder / found.substr(1);
}

}  // namespace lockstep::detail
