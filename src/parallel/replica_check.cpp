#include "parallel/replica_check.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/format.h"
#include "device/step_recording.h"

namespace lockstep::detail {
namespace {

constexpr std::int64_t kMostStepsBetween = 64;

std::int64_t checksum_of(const at::Tensor& tensor) {
  const auto values = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
  return static_cast<std::int64_t>(XXH3_64bits(values.const_data_ptr(), values.nbytes()));
}

// Ranks in groups of equal checksums.
std::string describe_groups(std::span<const std::int64_t> checksums, const Communicator& comm, int first,
                            int shards) {
  std::vector<std::pair<std::int64_t, std::vector<std::string>>> groups;
  for (int rank = first; rank < comm.size(); rank += shards) {
    const auto checksum = checksums[static_cast<std::size_t>(rank)];
    auto group = std::ranges::find(groups, checksum, [](const auto& each) { return each.first; });
    if (group == groups.end()) group = groups.insert(group, {checksum, {}});
    group->second.push_back(std::to_string(comm.global_rank(rank)));
  }
  std::vector<std::string> texts;
  for (const auto& [checksum, ranks] : groups)
    texts.push_back("those of rank " + lockstep::joined(ranks, " and "));
  return lockstep::joined(texts, ", others: ");
}

[[noreturn]] void refuse_difference(const Replica& replica, std::string got) {
  throw Error(
      "parallel",
      {.what = "parameter " + replica.name + " differs between ranks, which hold copies of it",
       .expected = "the same values on all of them: only the optimizer, or all ranks alike, write to it",
       .got = std::move(got),
       .hint = "a forward that writes to a parameter, as Embedding with max_norm does, follows each rank's "
               "own batch: compute with a changed copy instead (weight / norm), or write to it after the "
               "step, on all ranks alike"});
}

}  // namespace

bool is_compared_after(std::int64_t steps) {
  return steps % kMostStepsBetween == 0 ||
         (steps < kMostStepsBetween && std::has_single_bit(static_cast<std::uint64_t>(steps)));
}

ReplicaCheck::ReplicaCheck(Communicator comm, std::size_t count,
                           std::function<Replica(std::size_t)> replica_of)
    : comm_(std::move(comm)), replica_of_(std::move(replica_of)), is_written_(count) {}

void ReplicaCheck::end_step() {
  meet_once_per_step([this] {
    if (is_compared_after(++steps_)) compare();
  });
}

// On all ranks alike.
std::vector<std::size_t> ReplicaCheck::written_anywhere() const {
  const auto flags = at::zeros({static_cast<std::int64_t>(is_written_.size())}, at::kByte);
  std::ranges::copy(is_written_, flags.mutable_data_ptr<std::uint8_t>());
  comm_.all_reduce(flags, ReduceOp::kMax);
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < is_written_.size(); ++i)
    if (flags.const_data_ptr<std::uint8_t>()[i] != 0) numbers.push_back(i);
  return numbers;
}

// By number, and then by rank.
at::Tensor ReplicaCheck::checksums_of(const std::vector<std::size_t>& numbers) const {
  const auto mine = at::empty({static_cast<std::int64_t>(numbers.size())}, at::kLong);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    mine.mutable_data_ptr<std::int64_t>()[i] = checksum_of(replica_of_(numbers[i]).tensor);
  const auto all = at::empty({comm_.size(), mine.numel()}, at::kLong);
  comm_.all_gather(all, mine);
  return all.t().contiguous();
}

void ReplicaCheck::compare() {
  if (comm_.size() == 1 || is_written_.empty()) return;
  const auto written = written_anywhere();
  if (written.empty()) return;
  const auto checksums = checksums_of(written);
  const auto ranks = static_cast<std::size_t>(comm_.size());
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto replica = replica_of_(written[i]);
    const std::span of_ranks(checksums.const_data_ptr<std::int64_t>() + i * ranks, ranks);
    const auto shards = static_cast<std::size_t>(replica.shards);
    for (std::size_t rank = shards; rank < ranks; ++rank)
      if (of_ranks[rank] != of_ranks[rank % shards])
        refuse_difference(replica,
                          describe_groups(of_ranks, comm_, static_cast<int>(rank % shards), replica.shards));
  }
  is_written_.assign(is_written_.size(), false);
}

namespace {

std::int64_t writes_to(const at::Tensor& tensor) { return tensor.is_inference() ? 0 : tensor._version(); }

c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

WriteVersions::WriteVersions(const std::vector<at::Tensor>& parameters) {
  for (const auto& parameter : parameters) {
    known_.push_back({.parameter = parameter,
                      .version = writes_to(parameter),
                      .memory = parameter.storage().getWeakStorageImpl()});
  }
}

void WriteVersions::note_writes(ReplicaCheck& check) const {
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const auto& [parameter, version, memory] = known_[i];
    if (writes_to(parameter) != version || memory_of(parameter) != memory._unsafe_get_target())
      check.note_write(i);
  }
}

void WriteVersions::settle() {
  for (auto& [parameter, version, memory] : known_) {
    version = writes_to(parameter);
    if (memory_of(parameter) != memory._unsafe_get_target())
      memory = parameter.storage().getWeakStorageImpl();
  }
}

}  // namespace lockstep::detail
