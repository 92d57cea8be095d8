#include <lockstep/comm/flat_collectives.h>

#include "comm/collectives/checks.h"
#include "comm/group/group.h"

namespace lockstep {
namespace {

Work started(const Communicator& comm, const detail::Collective& collective) {
  detail::check_collective(collective, comm.rank(), comm.size());
  return Work(comm.group()->start(collective));
}

}  // namespace

Work all_gather_flat_async(const Communicator& comm, const at::Tensor& output, const at::Tensor& input,
                           std::int64_t layout) {
  return started(
      comm, {.kind = detail::CollectiveKind::kAllGather, .output = output, .input = input, .layout = layout});
}

Work reduce_scatter_flat_async(const Communicator& comm, const at::Tensor& output, const at::Tensor& input,
                               ReduceOp op, std::int64_t layout) {
  return started(comm, {.kind = detail::CollectiveKind::kReduceScatter,
                        .output = output,
                        .input = input,
                        .op = op,
                        .layout = layout});
}

Work all_to_all_flat_async(const Communicator& comm, const at::Tensor& output, const at::Tensor& input,
                           std::int64_t layout) {
  return started(
      comm, {.kind = detail::CollectiveKind::kAllToAll, .output = output, .input = input, .layout = layout});
}

}  // namespace lockstep
