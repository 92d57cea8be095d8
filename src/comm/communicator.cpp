#include <lockstep/comm/communicator.h>

#include <algorithm>
#include <map>

#include <lockstep/base/error.h>

#include "comm/collectives/collective.h"
#include "comm/group/group.h"
#include "comm/waiting.h"
#include "rendezvous/diagnosis.h"
#include "rendezvous/message.h"

namespace lockstep {
namespace {

using detail::Collective;
using detail::CollectiveKind;
using Splits = std::span<const std::int64_t>;

// Collectives write into storage behind autograd's back, as an in-place operator under NoGradGuard would:
// leaves may require gradients, and tensors saved for backward must notice.
at::Tensor without_gradient(const at::Tensor& tensor, bool is_written) {
  if (!tensor.defined()) return tensor;
  if (is_written && !tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  return tensor.requires_grad() ? tensor.detach() : tensor;
}

bool is_written(const Collective& collective, int rank) {
  return collective.kind != CollectiveKind::kReduce || rank == collective.root;
}

Collective checked(const Communicator& comm, Collective collective) {
  detail::check_collective(collective, detail::caller_in(*comm.group()));
  collective.output = without_gradient(collective.output, is_written(collective, comm.rank()));
  collective.input = without_gradient(collective.input, false);
  for (auto& tensor : collective.outputs) tensor = without_gradient(tensor, true);
  for (auto& tensor : collective.inputs) tensor = without_gradient(tensor, false);
  return collective;
}

template <class T>
std::vector<T> vector_of(std::span<const T> values) {
  return {values.begin(), values.end()};
}

Collective all_reduce_of(const at::Tensor& tensor, ReduceOp op) {
  return {.kind = CollectiveKind::kAllReduce, .output = tensor, .op = op};
}

Collective reduce_of(const at::Tensor& tensor, int root, ReduceOp op) {
  return {.kind = CollectiveKind::kReduce, .output = tensor, .op = op, .root = root};
}

Collective broadcast_of(const at::Tensor& tensor, int root) {
  return {.kind = CollectiveKind::kBroadcast, .output = tensor, .root = root};
}

Collective all_gather_of(const at::Tensor& output, const at::Tensor& input) {
  return {.kind = CollectiveKind::kAllGather, .output = output, .input = input};
}

Collective all_gather_of(std::span<const at::Tensor> outputs, const at::Tensor& input) {
  return {.kind = CollectiveKind::kAllGatherList, .input = input, .outputs = vector_of(outputs)};
}

Collective gather_of(std::span<const at::Tensor> outputs, const at::Tensor& input, int root) {
  return {.kind = CollectiveKind::kGather, .input = input, .outputs = vector_of(outputs), .root = root};
}

Collective scatter_of(const at::Tensor& output, std::span<const at::Tensor> inputs, int root) {
  return {.kind = CollectiveKind::kScatter, .output = output, .inputs = vector_of(inputs), .root = root};
}

Collective reduce_scatter_of(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  return {.kind = CollectiveKind::kReduceScatter, .output = output, .input = input, .op = op};
}

Collective all_to_all_of(const at::Tensor& output, const at::Tensor& input, Splits output_splits,
                         Splits input_splits) {
  return {.kind = CollectiveKind::kAllToAll,
          .output = output,
          .input = input,
          .output_splits = vector_of(output_splits),
          .input_splits = vector_of(input_splits)};
}

Collective all_to_all_of(std::span<const at::Tensor> outputs, std::span<const at::Tensor> inputs) {
  return {.kind = CollectiveKind::kAllToAllList, .outputs = vector_of(outputs), .inputs = vector_of(inputs)};
}

Collective send_of(const at::Tensor& tensor, int dst, int tag) {
  return {.kind = CollectiveKind::kSend, .input = tensor, .root = dst, .tag = tag};
}

Collective recv_of(const at::Tensor& tensor, int src, int tag) {
  return {.kind = CollectiveKind::kRecv, .output = tensor, .root = src, .tag = tag};
}

void run(const Communicator& comm, Collective collective) {
  comm.group()->run(checked(comm, std::move(collective)));
}

Work start(const Communicator& comm, Collective collective) {
  return Work(comm.group()->start(checked(comm, std::move(collective))));
}

[[noreturn]] void refuse_ranks(const std::string& what, const std::string& expected,
                               const std::vector<int>& ranks) {
  throw CommError("comm",
                  {.what = "new_group: " + what, .expected = expected, .got = detail::list_of(ranks)});
}

void check_ranks(const std::vector<int>& sorted, int size) {
  const auto in_range = "ranks from 0 to " + std::to_string(size - 1);
  if (sorted.empty()) refuse_ranks("the list of ranks is empty", in_range, sorted);
  if (sorted.front() < 0 || sorted.back() >= size)
    refuse_ranks("a rank is not in the group", in_range, sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end())
    refuse_ranks("a rank is named twice", "each once", sorted);
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

void Work::wait() const {
  if (pending_) pending_->wait();
}

void Work::wait_host() const {
  if (pending_) pending_->wait_host();
}

bool Work::is_completed() const { return !pending_ || pending_->is_completed(); }

Communicator::Communicator() : group_(detail::single_group()) {}
Communicator::Communicator(std::shared_ptr<detail::Group> group) : group_(std::move(group)) {}

int Communicator::rank() const { return group_->identity().rank; }
int Communicator::size() const { return group_->identity().size(); }
int Communicator::global_rank(int rank) const {
  if (rank >= 0 && rank < size()) return group_->identity().global_rank(rank);
  throw CommError("comm", {.what = "global_rank: rank is not in the group",
                           .expected = "0 to " + std::to_string(size() - 1),
                           .got = std::to_string(rank)});
}
const std::vector<int>& Communicator::global_ranks() const { return group_->identity().global_ranks; }
std::string Communicator::backend() const { return group_->backend(); }
std::chrono::milliseconds Communicator::timeout() const { return group_->timeout(); }
std::uint64_t Communicator::bytes_sent() const { return group_->bytes_sent(); }
std::string Communicator::activity() const { return group_->activity(); }
void Communicator::close() const { group_->close(); }

void Communicator::all_reduce(const at::Tensor& tensor, ReduceOp op) const {
  run(*this, all_reduce_of(tensor, op));
}

void Communicator::reduce(const at::Tensor& tensor, int root, ReduceOp op) const {
  run(*this, reduce_of(tensor, root, op));
}

void Communicator::broadcast(const at::Tensor& tensor, int root) const {
  run(*this, broadcast_of(tensor, root));
}

void Communicator::all_gather(const at::Tensor& output, const at::Tensor& input) const {
  run(*this, all_gather_of(output, input));
}

void Communicator::all_gather(std::span<const at::Tensor> outputs, const at::Tensor& input) const {
  run(*this, all_gather_of(outputs, input));
}

void Communicator::gather(std::span<const at::Tensor> outputs, const at::Tensor& input, int root) const {
  run(*this, gather_of(outputs, input, root));
}

void Communicator::scatter(const at::Tensor& output, std::span<const at::Tensor> inputs, int root) const {
  run(*this, scatter_of(output, inputs, root));
}

void Communicator::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) const {
  run(*this, reduce_scatter_of(output, input, op));
}

void Communicator::all_to_all(const at::Tensor& output, const at::Tensor& input, Splits output_splits,
                              Splits input_splits) const {
  run(*this, all_to_all_of(output, input, output_splits, input_splits));
}

void Communicator::all_to_all(std::span<const at::Tensor> outputs, std::span<const at::Tensor> inputs) const {
  run(*this, all_to_all_of(outputs, inputs));
}

void Communicator::send(const at::Tensor& tensor, int dst, int tag) const {
  run(*this, send_of(tensor, dst, tag));
}

void Communicator::recv(const at::Tensor& tensor, int src, int tag) const {
  run(*this, recv_of(tensor, src, tag));
}

void Communicator::barrier() const { run(*this, {}); }

void Communicator::monitored_barrier(std::chrono::milliseconds timeout) const {
  run(*this, {.kind = CollectiveKind::kMonitoredBarrier, .timeout = detail::bounded(timeout)});
}

Work Communicator::all_reduce_async(const at::Tensor& tensor, ReduceOp op) const {
  return start(*this, all_reduce_of(tensor, op));
}

Work Communicator::reduce_async(const at::Tensor& tensor, int root, ReduceOp op) const {
  return start(*this, reduce_of(tensor, root, op));
}

Work Communicator::broadcast_async(const at::Tensor& tensor, int root) const {
  return start(*this, broadcast_of(tensor, root));
}

Work Communicator::all_gather_async(const at::Tensor& output, const at::Tensor& input) const {
  return start(*this, all_gather_of(output, input));
}

Work Communicator::all_gather_async(std::span<const at::Tensor> outputs, const at::Tensor& input) const {
  return start(*this, all_gather_of(outputs, input));
}

Work Communicator::gather_async(std::span<const at::Tensor> outputs, const at::Tensor& input,
                                int root) const {
  return start(*this, gather_of(outputs, input, root));
}

Work Communicator::scatter_async(const at::Tensor& output, std::span<const at::Tensor> inputs,
                                 int root) const {
  return start(*this, scatter_of(output, inputs, root));
}

Work Communicator::reduce_scatter_async(const at::Tensor& output, const at::Tensor& input,
                                        ReduceOp op) const {
  return start(*this, reduce_scatter_of(output, input, op));
}

Work Communicator::all_to_all_async(const at::Tensor& output, const at::Tensor& input, Splits output_splits,
                                    Splits input_splits) const {
  return start(*this, all_to_all_of(output, input, output_splits, input_splits));
}

Work Communicator::all_to_all_async(std::span<const at::Tensor> outputs,
                                    std::span<const at::Tensor> inputs) const {
  return start(*this, all_to_all_of(outputs, inputs));
}

Work Communicator::send_async(const at::Tensor& tensor, int dst, int tag) const {
  return start(*this, send_of(tensor, dst, tag));
}

Work Communicator::recv_async(const at::Tensor& tensor, int src, int tag) const {
  return start(*this, recv_of(tensor, src, tag));
}

Work Communicator::barrier_async() const { return start(*this, {}); }

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
