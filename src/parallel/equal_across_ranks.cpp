#include "parallel/equal_across_ranks.h"

#include <algorithm>
#include <functional>
#include <sstream>

#include <lockstep/base/error.h>

#include "base/format.h"

namespace lockstep::detail {
namespace {

std::string line_or_end(std::istringstream& text) {
  std::string line;
  return std::getline(text, line) ? line : "nothing more";
}

[[noreturn]] void name_difference(const std::string& first, const std::string& other, std::size_t rank,
                                  const DifferenceWords& words) {
  std::istringstream left(first), right(other);
  std::string expected, got;
  do {
    expected = line_or_end(left);
    got = line_or_end(right);
  } while (expected == got);
  throw CollectiveMismatch("parallel", {.what = words.what,
                                        .expected = expected + " on rank 0",
                                        .got = got + " on rank " + std::to_string(rank),
                                        .where = "",
                                        .hint = words.hint});
}

}  // namespace

// They may be many; unless their hashes differ, only those travel.
void require_equal_across_ranks(const std::vector<std::string>& lines, const Communicator& comm,
                                const DifferenceWords& words) {
  if (comm.size() == 1) return;
  const auto mine = lockstep::joined(lines, "\n");
  const auto hashes = comm.all_gather_bytes(std::to_string(std::hash<std::string>{}(mine)));
  if (std::equal(hashes.begin() + 1, hashes.end(), hashes.begin())) return;
  const auto all = comm.all_gather_bytes(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) name_difference(all[0], all[rank], rank, words);
  }
}

}  // namespace lockstep::detail
