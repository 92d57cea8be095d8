#include "checkpoint/open_together.h"

#include <lockstep/base/error.h>

#include "checkpoint/together.h"

namespace lockstep::detail {

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
