// The table of collectives: all that differs between kinds. A new kind is a new row.
#include <array>

#include "comm/collectives/collective.h"
#include "comm/collectives/collective_runner.h"
#include "comm/collectives/device_collectives.h"
#include "comm/collectives/segment_collectives.h"
#include "comm/collectives/signature.h"

namespace lockstep::detail {
namespace {

using Kind = CollectiveKind;
using Runner = CollectiveRunner;
using Devices = DeviceCollectives;
using Segments = SegmentCollectives;

constexpr std::array<CollectiveRow, kCollectiveKinds> kRows{{
    {.kind = Kind::kAllReduce,
     .name = "all_reduce",
     .is_reduction = true,
     .can_be_inline = true,
     .check = &check_all_reduce,
     .run = &Runner::all_reduce,
     .run_in_segments = &Segments::all_reduce,
     .run_on_devices = &Devices::all_reduce},
    {.kind = Kind::kAllReduceList,
     .name = "all_reduce",
     .is_reduction = true,
     .takes_lists = true,
     .operand = Operand::kFirstOutput,
     .check = &check_all_reduce_list,
     .run_in_segments = &Segments::all_reduce,
     .run_on_devices = &Devices::all_reduce_list},
    {.kind = Kind::kReduce,
     .name = "reduce",
     .is_reduction = true,
     .is_rooted = true,
     .check = &check_reduce,
     .run = &Runner::reduce,
     .run_in_segments = &Segments::reduce,
     .run_on_devices = &Devices::reduce},
    {.kind = Kind::kBroadcast,
     .name = "broadcast",
     .is_rooted = true,
     .can_be_inline = true,
     .check = &check_broadcast,
     .run = &Runner::broadcast,
     .run_in_segments = &Segments::broadcast,
     .run_on_devices = &Devices::broadcast},
    {.kind = Kind::kAllGather,
     .name = "all_gather",
     .can_be_inline = true,
     .operand = Operand::kInput,
     .check = &check_all_gather,
     .run = &Runner::all_gather,
     .run_in_segments = &Segments::all_gather,
     .run_on_devices = &Devices::all_gather},
    {.kind = Kind::kAllGatherList,
     .name = "all_gather",
     .takes_lists = true,
     .operand = Operand::kInput,
     .check = &check_all_gather_list,
     .bytes_moved = &bytes_of_all_gather_list,
     .run = &Runner::all_gather_list,
     .run_in_segments = &Segments::all_gather_list,
     .run_on_devices = &Devices::all_gather_list},
    {.kind = Kind::kGather,
     .name = "gather",
     .is_rooted = true,
     .operand = Operand::kInput,
     .check = &check_gather,
     .bytes_moved = &bytes_of_gather,
     .run = &Runner::gather,
     .run_in_segments = &Segments::gather,
     .run_on_devices = &Devices::gather},
    {.kind = Kind::kScatter,
     .name = "scatter",
     .is_rooted = true,
     .check = &check_scatter,
     .bytes_moved = &bytes_of_scatter,
     .run = &Runner::scatter,
     .run_in_segments = &Segments::scatter,
     .run_on_devices = &Devices::scatter},
    {.kind = Kind::kReduceScatter,
     .name = "reduce_scatter",
     .is_reduction = true,
     .check = &check_reduce_scatter,
     .run = &Runner::reduce_scatter,
     .run_in_segments = &Segments::reduce_scatter,
     .run_on_devices = &Devices::reduce_scatter},
    {.kind = Kind::kAllToAll,
     .name = "all_to_all",
     .check = &check_all_to_all,
     .bytes_moved = &bytes_of_all_to_all,
     .run = &Runner::all_to_all,
     .run_in_segments = &Segments::all_to_all,
     .run_on_devices = &Devices::all_to_all},
    {.kind = Kind::kAllToAllList,
     .name = "all_to_all",
     .takes_lists = true,
     .operand = Operand::kFirstInput,
     .check = &check_all_to_all_list,
     .bytes_moved = &bytes_of_all_to_all_list,
     .run = &Runner::all_to_all_list,
     .run_in_segments = &Segments::all_to_all_list,
     .run_on_devices = &Devices::all_to_all_list},
    {.kind = Kind::kBarrier, .name = "barrier", .can_be_inline = true, .run = &Runner::barrier},
    {.kind = Kind::kMonitoredBarrier, .name = "monitored_barrier"},
    {.kind = Kind::kSend,
     .name = "send",
     .is_message = true,
     .operand = Operand::kInput,
     .check = &check_send,
     .run = &Runner::send},
    {.kind = Kind::kRecv, .name = "recv", .is_message = true, .check = &check_recv, .run = &Runner::recv},
}};

constexpr bool is_in_order() {
  for (std::size_t kind = 0; kind < kRows.size(); ++kind) {
    if (kRows[kind].kind != static_cast<Kind>(kind)) return false;
  }
  return true;
}
static_assert(is_in_order(), "rows are in the order of the kinds");

}  // namespace

const CollectiveRow& row_of(CollectiveKind kind) { return kRows[static_cast<std::size_t>(kind)]; }

const at::Tensor& operand_of(const Collective& collective) {
  static const at::Tensor kNone;
  const auto operand = row_of(collective.kind).operand;
  if (operand == Operand::kOutput) return collective.output;
  if (operand == Operand::kInput) return collective.input;
  const auto& list = operand == Operand::kFirstInput ? collective.inputs : collective.outputs;
  return list.empty() ? kNone : list.front();
}

std::int64_t bytes_in(std::span<const at::Tensor> tensors) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
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
