// Communicator: a group of ranks and the collectives between them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
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

  /// Blocks until the collective is done; its tensors may not be touched before.
  /// @throws PeerLost, Timeout, CommError: what the collective failed with, at every call
  void wait() const;

  /// Whether wait() would return or throw at once. Does not block.
  bool is_completed() const;

 private:
  std::shared_ptr<detail::Pending> pending_;
};

/// A group of ranks, numbered 0 to size() - 1. A cheap value: copies share the group.
///
/// Collectives must be called by all ranks in the same order, with equal shapes and dtypes.
/// The order within a rank is that of the calls, blocking and asynchronous ones alike, so a rank
/// must issue them from one thread at a time. In a world of one every collective is a no-op, so
/// that callers never ask whether they are distributed.
///
/// Tensors live on the CPU, have any strides, and dtype float64/32/16, bfloat16, int64/32/16/8,
/// uint8 or bool. Gradients do not flow through collectives. Each collective @throws CommError for a
/// tensor or argument that it cannot take, PeerLost when another rank went away, Timeout when
/// timeout() passed, CommError for other failures. After a failure the group is of no further use.
class LOCKSTEP_API Communicator {
 public:
  /// A world of one.
  Communicator();
  /// For backends and tests: the group that `group` implements.
  explicit Communicator(std::shared_ptr<detail::Group> group);

  int rank() const;                           ///< this rank, 0 to size() - 1
  int size() const;                           ///< number of ranks
  std::string backend() const;                ///< what carries the bytes: "single" or "gloo"
  std::chrono::milliseconds timeout() const;  ///< longest wait for peers within one collective

  /// Payload bytes that this rank handed to other ranks so far, as if each receiver got its share
  /// straight from its source (no envelopes, no forwarding).
  std::uint64_t bytes_sent() const;

  /// What this rank does now, for diagnostics from another thread: "all_reduce seq 7", or "".
  std::string activity() const;

  /// Replaces `tensor` by the reduction of all ranks' tensors. Collective, blocking.
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;

  /// Replaces `tensor` by that of rank `root`. Collective, blocking.
  void broadcast(const at::Tensor& tensor, int root = 0) const;

  /// Writes all ranks' `input`, in rank order, to `output`, which has size() times its elements.
  /// Collective, blocking.
  void all_gather(const at::Tensor& output, const at::Tensor& input) const;

  /// Reduces all ranks' `input` and writes the rank()-th of size() equal parts to `output`.
  /// Collective, blocking.
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum) const;

  /// Returns when all ranks have called it. Collective, blocking.
  void barrier() const;

  /// As their namesakes, but return at once. Collective. Tensors may not be touched until wait().
  [[nodiscard]] Work all_reduce_async(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  [[nodiscard]] Work broadcast_async(const at::Tensor& tensor, int root = 0) const;
  [[nodiscard]] Work all_gather_async(const at::Tensor& output, const at::Tensor& input) const;
  [[nodiscard]] Work reduce_scatter_async(const at::Tensor& output, const at::Tensor& input,
                                          ReduceOp op = ReduceOp::kSum) const;
  [[nodiscard]] Work barrier_async() const;

  /// Returns `bytes` of rank `root`; the others' are ignored. Collective, blocking.
  std::string broadcast_bytes(const std::string& bytes, int root = 0) const;

  /// Returns all ranks' `bytes`, by rank; their lengths may differ. Collective, blocking.
  std::vector<std::string> all_gather_bytes(const std::string& bytes) const;

  /// Leaves the group for good: finishes what is under way, waits a few seconds at most for the
  /// others to do the same, closes connections. Collective, but tolerates ranks that are gone.
  /// Later collectives @throw CommError. Dropping the last copy without it closes at once.
  void close() const;

  /// For backends: what implements this group.
  const std::shared_ptr<detail::Group>& group() const { return group_; }

 private:
  std::shared_ptr<detail::Group> group_;
};

}  // namespace lockstep
