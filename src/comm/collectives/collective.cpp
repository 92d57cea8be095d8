#include "comm/collectives/collective.h"

namespace lockstep::detail {

const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kAllGatherList:
      return "all_gather";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kScatter:
      return "scatter";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kAllToAllList:
      return "all_to_all";
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kMonitoredBarrier:
      return "monitored_barrier";
    case CollectiveKind::kSend:
      return "send";
    case CollectiveKind::kRecv:
      return "recv";
  }
  return "collective";
}

std::vector<std::int64_t> bytes_by_rank(const at::Tensor& tensor, std::span<const std::int64_t> splits,
                                        int size) {
  const auto whole = static_cast<std::int64_t>(tensor.nbytes());
  if (splits.empty()) return std::vector<std::int64_t>(static_cast<std::size_t>(size), whole / size);
  const auto row = tensor.size(0) == 0 ? 0 : whole / tensor.size(0);
  std::vector<std::int64_t> bytes(splits.begin(), splits.end());
  for (auto& each : bytes) each *= row;
  return bytes;
}

}  // namespace lockstep::detail
