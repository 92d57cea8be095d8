#include "checkpoint/together.h"

#include <exception>
#include <numeric>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "formats/checkpoint_folders.h"

namespace lockstep::detail {

Communicator own_group(const Communicator& communicator) {
  std::vector<int> all(static_cast<std::size_t>(communicator.size()));
  std::iota(all.begin(), all.end(), 0);
  return communicator.size() == 1 ? Communicator() : communicator.new_group(all).value();
}

namespace {

constexpr char kDone = '+';
constexpr char kFailed = '-';

// The outcome of a step on one rank; `text` tells it to the others.
struct Outcome {
  std::string text;
  std::exception_ptr failure = {};
};

Outcome outcome_of(const std::function<std::string()>& step) try {
  return {.text = kDone + step()};
} catch (const c10::Error& error) {
  return {.text = kFailed + std::string(error.what_without_backtrace()), .failure = std::current_exception()};
} catch (const std::exception& error) {
  return {.text = kFailed + std::string(error.what()), .failure = std::current_exception()};
} catch (...) {
  return {.text = kFailed + std::string("something that is no std::exception"),
          .failure = std::current_exception()};
}

// The outcomes without their marks, by rank; `refuse(rank, reason)` throws for the first that failed.
template <class Refuse>
std::vector<std::string> succeeded(std::vector<std::string> outcomes, const Refuse& refuse) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const bool is_done = outcomes[rank].front() == kDone;
    outcomes[rank].erase(0, 1);
    if (!is_done) refuse(rank, outcomes[rank]);
  }
  return outcomes;
}

// The tag in `folder` that is meant; nothing where it is `folder` itself.
std::string tag_in(const std::filesystem::path& folder, const std::string& tag) {
  const auto found = tagged_folder(folder, tag);
  return found == folder ? std::string() : found.filename().string();
}

}  // namespace

std::string together(const Communicator& communicator, const std::filesystem::path& folder,
                     const std::function<std::string()>& step) {
  const auto refuse = [&](std::size_t rank, const std::string& reason) {
    throw IoError("checkpoint", {.what = "checkpoint " + folder.string() + " was not written",
                                 .got = reason,
                                 .where = "rank " + std::to_string(rank)});
  };
  return succeeded(communicator.all_gather_bytes(outcome_of(step).text), refuse).front();
}

std::vector<std::string> all_or_none(const Communicator& communicator, const std::string& what,
                                     const std::function<std::string()>& step) {
  const auto refuse = [&](std::size_t rank, const std::string& reason) {
    throw CheckpointError("checkpoint",
                          {.what = what, .got = reason, .where = "rank " + std::to_string(rank)});
  };
  const auto own = outcome_of(step);
  auto outcomes = communicator.all_gather_bytes(own.text);
  if (own.failure) std::rethrow_exception(own.failure);
  return succeeded(std::move(outcomes), refuse);
}

std::vector<std::string> read_together(const Communicator& communicator, const std::filesystem::path& folder,
                                       const std::function<std::string()>& step) {
  return all_or_none(communicator, "checkpoint " + folder.string() + " cannot be used", step);
}

std::filesystem::path agreed_folder(const Communicator& communicator, const std::filesystem::path& folder,
                                    const std::string& tag) {
  const auto on_rank0 = [&] { return communicator.rank() == 0 ? tag_in(folder, tag) : std::string(); };
  const auto found = read_together(communicator, folder, on_rank0).front();
  return found.empty() ? folder : folder / found;
}

std::shared_ptr<const CheckpointFiles> open_together(const std::filesystem::path& folder, Verify verify,
                                                     const Communicator& communicator) {
  return open_together(folder, verify, communicator,
                       {.index = communicator.rank(), .count = communicator.size()});
}

std::shared_ptr<const CheckpointFiles> open_together(const std::filesystem::path& folder, Verify verify,
                                                     const Communicator& communicator,
                                                     const OpenShare& share) {
  std::shared_ptr<const CheckpointFiles> files;
  const auto checksums = read_together(communicator, folder, [&] {
    files = std::make_shared<const CheckpointFiles>(folder, verify, share);
    return files->manifest().checksum;
  });
  for (std::size_t rank = 0; rank < checksums.size(); ++rank)
    if (checksums[rank] != checksums.front())
      throw CheckpointError("checkpoint", {.what = "checkpoint " + folder.string() + " cannot be used",
                                           .got = "another checkpoint than that of rank 0",
                                           .where = "rank " + std::to_string(rank)});
  return files;
}

}  // namespace lockstep::detail
