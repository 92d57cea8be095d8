// Communicator: a group of ranks and the collectives between them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/reduce_op.h>

namespace lockstep {

namespace detail {
class Group;
class Pending;
}  // namespace detail

/// A collective under way. Copies share the same operation; dropping all of them does not cancel it.
class LOCKSTEP_API Work {
 public:
  /// Work that is done already.
  Work() = default;
  /// For backends.
  explicit Work(std::shared_ptr<detail::Pending> pending) : pending_(std::move(pending)) {}

  /// Blocks until the collective is done; its tensors may not be touched before. Of tensors on a device:
  /// blocks until the rest is in the hands of the device, and makes its current stream wait for that.
  /// @throws PeerLost, Timeout, CommError: what the collective failed with, at every call
  void wait() const;

  /// The same, but returns only when the device, too, is done: the host may then read what it gets from
  /// there.
  void wait_host() const;

  /// Whether wait() would return or throw at once. Does not block.
  bool is_completed() const;

 private:
  std::shared_ptr<detail::Pending> pending_;
};

/// A group of ranks, numbered 0 to size() - 1. A cheap value: copies share the group.
///
/// Collectives must be called by all ranks in the same order, with equal shapes and dtypes unless they
/// say otherwise. The order within a rank is that of the calls, blocking and asynchronous ones alike, so
/// a rank must issue them from one thread at a time. Messages (send, recv) are in no order with
/// collectives, only with those of the same two ranks, direction and tag. In a world of one every
/// collective is a copy at most, so that callers never ask whether they are distributed.
///
/// The tensors of a call live on the CPU or on one device, have any strides, and dtype float64/32/16,
/// bfloat16, complex128/64, int64/32/16/8, uint8 or bool. Those on a device travel through page-locked memory
/// of the host, with the bits that the same collective gives on the CPU, and calls order the device's current
/// stream. Gradients do not flow through collectives. Each collective @throws CommError for a tensor or
/// argument that it cannot take, PeerLost when another rank went away, Timeout when timeout() passed,
/// CommError for other failures. After a failure the group is of no further use. Errors name ranks by their
/// number in the job.
class LOCKSTEP_API Communicator {
 public:
  /// A world of one.
  Communicator();
  /// For backends and tests: the group that `group` implements.
  explicit Communicator(std::shared_ptr<detail::Group> group);

  int rank() const;             ///< this rank, 0 to size() - 1
  int size() const;             ///< number of ranks
  std::string backend() const;  ///< what carries the bytes: "single", "sockets", "gloo" or "nccl"
  std::chrono::milliseconds timeout() const;  ///< longest wait for peers within one collective

  /// Payload bytes that this rank handed to other ranks so far, as if each receiver got its share
  /// straight from its source (no envelopes, no forwarding).
  std::uint64_t bytes_sent() const;

  /// What this rank does now, for diagnostics from another thread: "all_reduce seq 7", "send to rank 2 seq 1"
  /// or "". Sequence numbers count the collectives of this group, or the messages to that rank, from 1.
  std::string activity() const;

  /// The rank in the job of rank `rank` of this group; the same number unless this is a sub-group.
  /// @throws CommError for a number that is no rank of this group
  int global_rank(int rank) const;
  /// Those of all ranks of this group, by rank.
  const std::vector<int>& global_ranks() const;

  /// Replaces `tensor` by the reduction of all ranks' tensors. Collective, blocking.
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;

  /// The same on rank `root` only, to the same bits; other ranks' tensors stay. Collective, blocking.
  void reduce(const at::Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::kSum) const;

  /// Replaces `tensor` by that of rank `root`. Collective, blocking.
  void broadcast(const at::Tensor& tensor, int root = 0) const;

  /// Writes all ranks' `input`, in rank order, to `output`, which has size() times its elements.
  /// Collective, blocking.
  void all_gather(const at::Tensor& output, const at::Tensor& input) const;

  /// Writes rank r's `input` to outputs[r], which has as many elements. Ranks' inputs may differ in size,
  /// not in dtype. Collective, blocking.
  void all_gather(std::span<const at::Tensor> outputs, const at::Tensor& input) const;

  /// The same on rank `root` only; the others give no `outputs`. Collective, blocking.
  void gather(std::span<const at::Tensor> outputs, const at::Tensor& input, int root = 0) const;

  /// Writes rank `root`'s inputs[r], which may differ in size, to `output` of rank r, which has as many
  /// elements. Other ranks give no `inputs`. Collective, blocking.
  void scatter(const at::Tensor& output, std::span<const at::Tensor> inputs, int root = 0) const;

  /// Reduces all ranks' `input` and writes the rank()-th of size() equal parts to `output`.
  /// Collective, blocking.
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum) const;

  /// Cuts `input` along its first dimension into one part per rank, of input_splits[r] rows, gives each
  /// rank its part, and joins what comes, output_splits[r] rows from rank r, to `output`, as
  /// torch.distributed.all_to_all_single. No splits: equal parts. Collective, blocking.
  void all_to_all(const at::Tensor& output, const at::Tensor& input,
                  std::span<const std::int64_t> output_splits = {},
                  std::span<const std::int64_t> input_splits = {}) const;

  /// The same with tensors of any sizes: inputs[r] goes to rank r, whose part comes to outputs[r].
  void all_to_all(std::span<const at::Tensor> outputs, std::span<const at::Tensor> inputs) const;

  /// Hands `tensor` to rank `dst`, which must call recv() with a tensor of as many elements, the same dtype
  /// and the same `tag` (0 to 2^31 - 2). Blocks until it is taken.
  void send(const at::Tensor& tensor, int dst, int tag = 0) const;

  /// Blocks until rank `src` has sent what `tensor` then holds.
  void recv(const at::Tensor& tensor, int src, int tag = 0) const;

  /// Returns when all ranks have called it. Collective, blocking.
  void barrier() const;

  /// The same, but knows who is missing. Slower than barrier(), for diagnostics. Collective, blocking.
  /// @throws Timeout naming the ranks that did not come within `timeout`; the group stays usable
  void monitored_barrier(std::chrono::milliseconds timeout) const;

  /// As their namesakes, but return at once. Tensors may not be touched until wait().
  [[nodiscard]] Work all_reduce_async(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  [[nodiscard]] Work reduce_async(const at::Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::kSum) const;
  [[nodiscard]] Work broadcast_async(const at::Tensor& tensor, int root = 0) const;
  [[nodiscard]] Work all_gather_async(const at::Tensor& output, const at::Tensor& input) const;
  [[nodiscard]] Work all_gather_async(std::span<const at::Tensor> outputs, const at::Tensor& input) const;
  [[nodiscard]] Work gather_async(std::span<const at::Tensor> outputs, const at::Tensor& input,
                                  int root = 0) const;
  [[nodiscard]] Work scatter_async(const at::Tensor& output, std::span<const at::Tensor> inputs,
                                   int root = 0) const;
  [[nodiscard]] Work reduce_scatter_async(const at::Tensor& output, const at::Tensor& input,
                                          ReduceOp op = ReduceOp::kSum) const;
  [[nodiscard]] Work all_to_all_async(const at::Tensor& output, const at::Tensor& input,
                                      std::span<const std::int64_t> output_splits = {},
                                      std::span<const std::int64_t> input_splits = {}) const;
  [[nodiscard]] Work all_to_all_async(std::span<const at::Tensor> outputs,
                                      std::span<const at::Tensor> inputs) const;
  [[nodiscard]] Work send_async(const at::Tensor& tensor, int dst, int tag = 0) const;
  [[nodiscard]] Work recv_async(const at::Tensor& tensor, int src, int tag = 0) const;
  [[nodiscard]] Work barrier_async() const;

  /// Returns `bytes` of rank `root`; the others' are ignored. Collective, blocking.
  std::string broadcast_bytes(const std::string& bytes, int root = 0) const;

  /// Returns all ranks' `bytes`, by rank; their lengths may differ. Collective, blocking.
  std::vector<std::string> all_gather_bytes(const std::string& bytes) const;

  /// The same on rank `root`; nothing on the others. Collective, blocking.
  std::vector<std::string> gather_bytes(const std::string& bytes, int root = 0) const;

  /// Returns rank `root`'s bytes[rank()]; other ranks give none. Collective, blocking.
  std::string scatter_bytes(std::span<const std::string> bytes, int root = 0) const;

  /// As send() and recv(), but the receiver need not know the length. Blocking.
  void send_bytes(const std::string& bytes, int dst, int tag = 0) const;
  std::string recv_bytes(int src, int tag = 0) const;

  /// Connects the ranks in `ranks` to a group of their own, numbered in ascending order, as
  /// torch.distributed.new_group. Nothing on the other ranks. Groups may overlap, and work beside each other
  /// and beside this one. Collective over this group: all ranks give the same list. Blocking.
  /// @throws CommError for a list that is empty, names a rank twice or none of the group;
  ///   CollectiveMismatch naming ranks that gave different lists
  std::optional<Communicator> new_group(const std::vector<int>& ranks) const;

  /// Connects the ranks that gave the same `color` to a group of their own, numbered by `key`, then by rank,
  /// as MPI_Comm_split. Nothing where `color` is negative. Collective over this group, blocking.
  std::optional<Communicator> split(int color, int key = 0) const;

  /// Leaves the group for good: finishes what is under way, waits a few seconds at most for the
  /// others to do the same, closes connections. Collective, but tolerates ranks that are gone.
  /// Later collectives @throw CommError. Dropping the last copy does the same where all has gone well. It ends
  /// at once where an exception passes, this rank has failed (note_failure()) or a collective is under way, and
  /// the others hear that this rank is gone; and, without waiting for others, in a sub-group.
  void close() const;

  /// For backends: what implements this group.
  const std::shared_ptr<detail::Group>& group() const { return group_; }

 private:
  std::shared_ptr<detail::Group> group_;
};

}  // namespace lockstep
