// One call of a collective, as a value: Communicator and c10d's callers fill it in, a backend carries it out.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/reduce_op.h>

namespace lockstep::detail {

/// Ranks that meet in a collective must name the same kind; kSend meets kRecv.
enum class CollectiveKind {
  kAllReduce,
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

/// In-place kinds use only `output`, kSend only `input`, barriers no tensor.
struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  at::Tensor output = {};
  at::Tensor input = {};
  std::vector<at::Tensor> outputs = {};          ///< where each rank has a tensor of its own: by rank
  std::vector<at::Tensor> inputs = {};           ///< likewise
  std::vector<std::int64_t> output_splits = {};  ///< kAllToAll: rows of `output` by rank; empty: equal
  std::vector<std::int64_t> input_splits = {};   ///< likewise of `input`
  ReduceOp op = ReduceOp::kSum;
  int root = 0;             ///< of rooted kinds; of kSend and kRecv: the other rank
  int tag = 0;              ///< kSend and kRecv
  std::int64_t layout = 0;  ///< of a tensor that holds others: a hash of their dtypes and shapes
  std::chrono::milliseconds timeout = {};  ///< kMonitoredBarrier
};

/// The name that users know: "all_reduce". Kinds that take lists are called as those that do not.
const char* name_of(CollectiveKind kind);

/// How many bytes of `tensor` go to, or come from, each of `size` ranks, where `splits` counts their rows. No
/// splits: equal parts.
std::vector<std::int64_t> bytes_by_rank(const at::Tensor& tensor, std::span<const std::int64_t> splits,
                                        int size);

/// Whether ranks have a list of tensors each, unlike kinds of the same name.
inline bool takes_lists(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGatherList || kind == CollectiveKind::kAllToAllList;
}

/// Between two ranks, and in no order with the collectives of the group.
inline bool is_point_to_point(CollectiveKind kind) {
  return kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv;
}

/// Whether only rank `root` has use for all parts.
inline bool is_rooted(CollectiveKind kind) {
  return kind == CollectiveKind::kReduce || kind == CollectiveKind::kBroadcast ||
         kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
}

}  // namespace lockstep::detail
