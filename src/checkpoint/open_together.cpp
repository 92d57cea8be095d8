#include "checkpoint/open_together.h"

#include <exception>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

constexpr char kOpened = '+';
constexpr char kRefused = '-';

// What came of it on one rank, for the others: which checkpoint that is, or what is wrong with it.
struct Outcome {
  std::shared_ptr<const CheckpointFiles> files;
  std::exception_ptr failure;
  std::string text;
};

Outcome open_share(const std::filesystem::path& folder, Verify verify, const OpenShare& share) try {
  auto files = std::make_shared<const CheckpointFiles>(folder, verify, share);
  auto text = kOpened + files->manifest().checksum;
  return {.files = std::move(files), .failure = {}, .text = std::move(text)};
} catch (const std::exception& error) {
  return {.files = {}, .failure = std::current_exception(), .text = kRefused + std::string(error.what())};
}

[[noreturn]] void refuse(const std::filesystem::path& folder, std::string got, std::size_t rank) {
  throw CheckpointError("checkpoint", {.what = "checkpoint " + folder.string() + " cannot be used",
                                       .got = std::move(got),
                                       .where = "rank " + std::to_string(rank)});
}

}  // namespace

std::shared_ptr<const CheckpointFiles> open_together(const std::filesystem::path& folder, Verify verify,
                                                     const Communicator& communicator) {
  auto own = open_share(folder, verify, {.index = communicator.rank(), .count = communicator.size()});
  const auto texts = communicator.all_gather_bytes(own.text);
  if (own.failure) std::rethrow_exception(own.failure);
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    if (texts[rank].front() == kRefused) refuse(folder, texts[rank].substr(1), rank);
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    if (texts[rank] != texts.front()) refuse(folder, "another checkpoint than that of rank 0", rank);
  return std::move(own.files);
}

}  // namespace lockstep::detail
