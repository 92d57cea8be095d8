// Groups of some of a group's ranks.
#include <algorithm>
#include <map>

#include <lockstep/base/error.h>
#include <lockstep/comm/communicator.h>

#include "comm/group.h"
#include "rendezvous/diagnosis.h"
#include "rendezvous/verdict.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& expected,
                         const std::vector<int>& ranks) {
  throw CommError("comm",
                  {.what = "new_group: " + what, .expected = expected, .got = detail::list_of(ranks)});
}

void check_ranks(const std::vector<int>& sorted, int size) {
  const auto in_range = "ranks from 0 to " + std::to_string(size - 1);
  if (sorted.empty()) refuse("the list of ranks is empty", in_range, sorted);
  if (sorted.front() < 0 || sorted.back() >= size) refuse("a rank is none of the group", in_range, sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end())
    refuse("a rank is named twice", "each once", sorted);
}

std::string all_of(const std::vector<int>& ranks) { return "{" + rendezvous::joined(ranks) + "}"; }

// Every rank knows all lists, and comes to the same words. Ranks that disagree would wait for each other
// until the timeout.
void check_agreement(const Communicator& comm, const std::vector<int>& ranks) {
  std::map<std::string, std::vector<int>> camps;  // by what they gave
  const auto lists = comm.all_gather_bytes(all_of(ranks));
  for (int rank = 0; rank < comm.size(); ++rank) {
    camps[lists[static_cast<std::size_t>(rank)]].push_back(comm.global_rank(rank));
  }
  if (camps.size() == 1) return;
  std::vector<std::vector<int>> members;
  std::string sides;
  for (const auto& [list, camp] : camps) {
    members.push_back(camp);
    sides += (sides.empty() ? "" : "; ") + rendezvous::ranks_text(camp) + ": " + list;
  }
  throw CollectiveMismatch("comm",
                           {.what = "new_group: the ranks disagree on the list of ranks",
                            .expected = "the same list on every rank",
                            .got = sides,
                            .where = "rank " + std::to_string(comm.global_rank(comm.rank()))},
                           rendezvous::outvoted(std::move(members)));
}

std::optional<Communicator> subgroup(const Communicator& comm, const std::vector<int>& members) {
  const int number = comm.group()->next_subgroup();
  if (std::ranges::find(members, comm.rank()) == members.end()) return std::nullopt;
  return Communicator(comm.group()->make_subgroup(members, number));
}

}  // namespace

std::optional<Communicator> Communicator::new_group(const std::vector<int>& ranks) const {
  auto members = ranks;
  std::ranges::sort(members);
  check_ranks(members, size());
  check_agreement(*this, members);
  return subgroup(*this, members);
}

std::optional<Communicator> Communicator::split(int color, int key) const {
  const auto all = at::empty({size(), 2}, at::kInt);
  all_gather(all, at::tensor({color, key}, at::kInt));
  const auto row = [&](int rank) { return all.const_data_ptr<int>() + 2 * rank; };
  std::vector<int> members;
  for (int rank = 0; rank < size() && color >= 0; ++rank) {
    if (row(rank)[0] == color) members.push_back(rank);
  }
  std::ranges::stable_sort(members, {}, [&](int rank) { return row(rank)[1]; });
  return subgroup(*this, members);
}

}  // namespace lockstep
