// Moves bytes between ranks through a c10d backend. Blocking, and blind to dtypes: whatever the
// backend thinks of int16 or bfloat16, it can carry their bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/comm/reduce_op.h>

#include "comm/c10d.h"
#include "comm/collectives/peer_memory_collectives.h"
#include "comm/transport/gloo/exchange.h"
#include "comm/transport/gloo/interruptible.h"
#include "comm/transport/gloo/messages.h"
#include "comm/transport/peer_memory.h"

namespace lockstep::detail {

/// The largest tag of users' messages; those beyond it are ours.
inline constexpr int kLastTag = std::numeric_limits<int>::max() - 1;

/// Whether the backend's own reductions know these.
bool can_reduce_natively(at::ScalarType dtype, ReduceOp op);

/// Whether they also do what ReduceOp says: NaN wins, and half precision is combined in float32.
bool reduces_as_promised(at::ScalarType dtype, ReduceOp op);

class LOCKSTEP_API Transport {
 public:
  explicit Transport(c10::intrusive_ptr<c10d::Backend> backend);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return backend_->getRank(); }
  int size() const { return backend_->getSize(); }
  std::uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

  /// Makes what is under way fail; the backend is of no further use then.
  void abort();

  /// Learns which ranks can read each other's memory, for exchanges, all_gather() and near(). Collective,
  /// blocking; nothing happens the second time.
  void meet();
  /// Collectives without messages. Open from meet() on, where all ranks can read each other: on all or none.
  NearCollectives& near() { return near_; }

  // All tensors are contiguous; all but the native reductions take any dtype.

  /// `output` becomes all ranks' `input`.
  void all_gather(at::Tensor output, at::Tensor input);
  /// Byte counts per rank: input_bytes[r] bytes of `input` go to rank r, output_bytes[r] come from it.
  void all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_bytes,
                  std::vector<std::int64_t> input_bytes);
  void broadcast(at::Tensor tensor, int root);
  void barrier();
  /// As Exchange::run().
  void exchange(std::span<const at::Tensor> to, std::span<const at::Tensor> from);
  /// These two may run beside everything else. Tags 0 to kLastTag.
  void send(const at::Tensor& tensor, int dst, int tag);
  void recv(const at::Tensor& tensor, int src, int tag);

  /// The backend's own reductions, where sums are in an order of its choice.
  void all_reduce_natively(at::Tensor tensor, ReduceOp op);
  /// Only rank `root` has the result; the others' tensors become anything.
  void reduce_natively(at::Tensor tensor, int root, ReduceOp op);

  /// Payload that went another way.
  void count_sent(std::int64_t bytes) {
    bytes_sent_.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
  }

 private:
  void count_sent(std::span<const at::Tensor> to);

  c10::intrusive_ptr<c10d::Backend> backend_;
  Interruptible waits_;
  Messages messages_;
  Seal seal_;
  Exchange exchange_;
  NearCollectives near_;
  bool has_met_ = false;
  std::atomic<std::uint64_t> bytes_sent_{0};
};

}  // namespace lockstep::detail
