// Transport: what moves the bytes of one group between its ranks. This is the contract of a transport, and
// the table of those that users can name.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/init.h>
#include <lockstep/comm/reduce_op.h>
#include <lockstep/comm/store.h>

#include "comm/transport/transfers.h"
#include "comm/waiting.h"

namespace lockstep::detail {

/// The largest tag of users' messages; larger ones are the transport's own.
inline constexpr int kLastTag = std::numeric_limits<int>::max() - 1;

/// Whether a transport's own reductions know a dtype and an operation, and do what ReduceOp says: NaN wins,
/// and half precision is combined in float32.
enum class NativeReduction { kNone, kImprecise, kExact };

/// Connected from its construction on. Its calls block until the tensors may be used again, take contiguous
/// tensors of the device types in its row of the table, and, but for the reductions, do not care about
/// dtypes. Ranks call collectives in the same order, one at a time; messages may run beside them and beside
/// each other. A call that fails throws what it likes: errors.h makes an error of lockstep of it. It is of no
/// further use then. A transport counts the bytes that it hands to other ranks with count_sent().
class LOCKSTEP_API Transport {
 public:
  Transport(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Tensor to[r] goes to rank r, whose tensor comes to from[r]. Either may be empty as a whole, or have
  /// undefined or empty tensors, where there is nothing to move: the other rank knows that, too. Sums in a
  /// fixed order and collectives of lists are made of exchanges.
  virtual void exchange(std::span<const at::Tensor> to, std::span<const at::Tensor> from) = 0;
  /// `output` becomes all ranks' `input`, in the order of the ranks.
  virtual void all_gather(at::Tensor output, at::Tensor input) = 0;
  /// input_bytes[r] bytes of `input` go to rank r; output_bytes[r] bytes of `output` come from it.
  virtual void all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_bytes,
                          std::vector<std::int64_t> input_bytes) = 0;
  virtual void broadcast(at::Tensor tensor, int root) = 0;
  virtual void barrier() = 0;

  /// Messages between two ranks keep their order within one tag, which is 0 to kLastTag.
  virtual void send(const at::Tensor& tensor, int dst, int tag) = 0;
  virtual void recv(const at::Tensor& tensor, int src, int tag) = 0;

  /// For algorithms that are made of many sends and receives, where the transport has more than exchanges.
  virtual bool has_transfers() const { return false; }
  virtual std::unique_ptr<Transfers> begin_transfers() { return nullptr; }

  /// The transport's own reductions, which add in an order of its choice. Most have none.
  virtual NativeReduction native_reduction(at::ScalarType /*dtype*/, ReduceOp /*op*/) const {
    return NativeReduction::kNone;
  }
  virtual void all_reduce(at::Tensor tensor, ReduceOp op);
  /// Only rank `root` has the result; the tensors of the others become anything.
  virtual void reduce(at::Tensor tensor, int root, ReduceOp op);

  /// Makes what is under way fail, and all later calls. From any thread; does not block.
  virtual void abort() = 0;

  /// Payload that this rank has handed to other ranks.
  std::uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  void count_sent(std::int64_t bytes) {
    bytes_sent_.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
  }

 private:
  int rank_;
  int size_;
  std::atomic<std::uint64_t> bytes_sent_{0};
};

/// What a transport needs to know to connect a group. Rank and world_size are those within the group.
struct ConnectOptions : CommOptions {
  std::string own_address = {};  ///< where this rank can be reached, numeric; empty: the transport chooses
  std::uint64_t group_id = 0;    ///< tells the groups of a job apart, and those of different jobs
  std::vector<int> global_ranks = {};  ///< the members, by their rank in the job; empty: the whole job

  /// The rank in the job of this group's rank `member`.
  int global_rank(int member) const {
    return global_ranks.empty() ? member : global_ranks[static_cast<std::size_t>(member)];
  }
};

struct DeviceTransport;

/// A row of the table of transports: what CommOptions::backend may name. To add one, make a folder here and
/// add a row (transport_table.cpp).
struct TransportRow {
  using DeviceTypes = std::span<const c10::DeviceType>;
  /// Connects this rank with all others through `store`, the group's own. Collective, blocking.
  /// @throws what `check`, called again and again meanwhile, throws; what the attempt fails with
  using Connect = std::shared_ptr<Transport> (*)(const ConnectOptions& options, const Store& store,
                                                 const FailureCheck& check);

  std::string_view name;     ///< CommOptions::backend
  DeviceTypes devices = {};  ///< it moves tensors of these
  Connect connect = nullptr;
  /// For tensors of its type of devices, beside the others; null: those of every device are staged.
  const DeviceTransport* on_devices = nullptr;

  /// Why this process cannot use it, and what to do; empty where it can.
  std::string absence() const;
};

/// The row named `name`; null where there is none.
LOCKSTEP_API const TransportRow* find_transport(std::string_view name);

/// Adds a row, whose name nobody else has, until the process ends.
LOCKSTEP_API void register_transport(const TransportRow& row);

/// `backend`, where it is "auto" the name of the transport that is used then: our own among ranks of
/// lockstep, Gloo among those of PyTorch, who know nothing else.
std::string resolved_backend(const std::string& backend, Peers peers);

/// What CommOptions::backend may be in this build, for texts: "auto, sockets, gloo".
std::string transport_names();

}  // namespace lockstep::detail
