// Collectives as values: a call of one, what it accepts, and the table of all kinds.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/util/FunctionRef.h>

#include <lockstep/comm/reduce_op.h>

namespace lockstep::detail {

class CollectiveRunner;
class DeviceCollectives;
class SegmentCollectives;
struct Flag;

/// Ranks that meet in a collective must name the same kind; kSend meets kRecv. Each has a row in the table.
enum class CollectiveKind {
  kAllReduce,
  kAllReduceList,
  kReduce,
  kBroadcast,
  kAllGather,
  kAllGatherList,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kAllToAllList,
  kBarrier,
  kMonitoredBarrier,
  kSend,
  kRecv
};
inline constexpr std::size_t kCollectiveKinds = static_cast<std::size_t>(CollectiveKind::kRecv) + 1;

/// A call. In-place kinds use only `output`, or `outputs` where they take lists, kSend only `input`, barriers
/// no tensor.
struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  at::Tensor output = {};
  at::Tensor input = {};
  std::vector<at::Tensor> outputs = {};  ///< where each rank has a tensor of its own: by rank; or a list
  std::vector<at::Tensor> inputs = {};   ///< likewise
  std::vector<std::int64_t> output_splits = {};  ///< kAllToAll: rows of `output` by rank; empty: equal
  std::vector<std::int64_t> input_splits = {};   ///< likewise of `input`
  ReduceOp op = ReduceOp::kSum;
  int root = 0;             ///< of rooted kinds; of kSend and kRecv: the other rank
  int tag = 0;              ///< kSend and kRecv
  std::int64_t layout = 0;  ///< of a tensor that holds others: a hash of their dtypes and shapes
  std::chrono::milliseconds timeout = {};  ///< kMonitoredBarrier
  bool is_by_devices = false;              ///< its group's devices move its tensors (device_link.h)
};

/// The tensors of a call that stand for it: their dtype is the same on all ranks, their shape, too, unless
/// amounts may differ between ranks.
enum class Operand { kOutput, kInput, kFirstInput, kFirstOutput };

/// The rank that calls, and what its group's transport moves.
struct Caller {
  int rank = 0;
  int size = 1;
  std::span<const c10::DeviceType> devices = {};
};

/// All that differs between kinds, in one place: a new kind is a new row (collective_table.cpp).
struct CollectiveRow {
  using Check = void (*)(const Collective& collective, const Caller& caller);
  using BytesMoved = std::vector<std::int64_t> (*)(const Collective& collective, int rank, int size);
  using Run = void (CollectiveRunner::*)(const Collective& collective);
  using AwaitLate = c10::function_ref<void(int member, Flag& flag, std::uint64_t value)>;
  using RunOnDevices = void (DeviceCollectives::*)(const Collective& collective);
  using RunInSegments = std::int64_t (SegmentCollectives::*)(const Collective& collective,
                                                             AwaitLate await_late);

  CollectiveKind kind;
  const char* name;            ///< as users know it; kinds that take lists are called as those that do not
  bool is_reduction = false;   ///< `op` counts
  bool is_rooted = false;      ///< `root` is one of the group's ranks
  bool takes_lists = false;    ///< ranks have a list of tensors each, unlike the kind of the same name
  bool is_message = false;     ///< between two ranks, in no order with the collectives of the group
  bool can_be_inline = false;  ///< where it is small, its data travel with the announcement
  Operand operand = Operand::kOutput;
  Check check = nullptr;  ///< @throws CommError for arguments that it cannot take; null: it takes none
  BytesMoved bytes_moved = nullptr;  ///< null unless ranks may give each other different amounts
  Run run = nullptr;  ///< null: to meet is all, or the transport gets it packed as another kind
  RunInSegments run_in_segments = nullptr;  ///< null: it always goes through the transport
  RunOnDevices run_on_devices = nullptr;    ///< null: tensors of devices are staged

  /// Whether amounts may differ between ranks.
  bool is_uneven() const { return bytes_moved != nullptr; }
};

const CollectiveRow& row_of(CollectiveKind kind);

/// The name that users know: "all_reduce".
inline const char* name_of(CollectiveKind kind) { return row_of(kind).name; }
inline bool is_message(CollectiveKind kind) { return row_of(kind).is_message; }

/// The tensor that stands for the call; undefined for barriers.
const at::Tensor& operand_of(const Collective& collective);

/// The bytes of all of `tensors` together.
std::int64_t bytes_in(std::span<const at::Tensor> tensors);

/// How many bytes of `tensor` go to, or come from, each of `size` ranks, where `splits` counts their rows. No
/// splits: equal parts.
std::vector<std::int64_t> bytes_by_rank(const at::Tensor& tensor, std::span<const std::int64_t> splits,
                                        int size);

/// Checks arguments and memory of a call.
/// @throws CommError naming collective, tensor and what is wrong with it
void check_collective(const Collective& collective, const Caller& caller);

/// Whether collectives take tensors of this type.
bool is_supported(at::ScalarType dtype);

// The table's column `check` (checks.cpp).
void check_all_reduce(const Collective& collective, const Caller& caller);
void check_all_reduce_list(const Collective& collective, const Caller& caller);
void check_reduce(const Collective& collective, const Caller& caller);
void check_broadcast(const Collective& collective, const Caller& caller);
void check_all_gather(const Collective& collective, const Caller& caller);
void check_all_gather_list(const Collective& collective, const Caller& caller);
void check_gather(const Collective& collective, const Caller& caller);
void check_scatter(const Collective& collective, const Caller& caller);
void check_reduce_scatter(const Collective& collective, const Caller& caller);
void check_all_to_all(const Collective& collective, const Caller& caller);
void check_all_to_all_list(const Collective& collective, const Caller& caller);
void check_send(const Collective& collective, const Caller& caller);
void check_recv(const Collective& collective, const Caller& caller);

}  // namespace lockstep::detail
