#include "parallel/xla/program_collectives.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <ranges>
#include <string>
#include <vector>

#include <lockstep/comm/packed_collectives.h>
#include <lockstep/torch.h>

#include "device/xla_library_interface.h"
#include "parallel/module_states.h"

namespace lockstep::detail {
namespace {

constexpr std::int64_t kBytesPerCall = 25 << 20;

// One collective for each element type that there is, in the order in which they come first.
void average_all(const Communicator& comm, std::span<const at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::ScalarType> dtypes;
  for (const auto& tensor : tensors)
    if (std::ranges::find(dtypes, tensor.scalar_type()) == dtypes.end())
      dtypes.push_back(tensor.scalar_type());
  for (const auto dtype : dtypes) {
    std::vector<at::Tensor> alike;
    std::ranges::copy_if(tensors, std::back_inserter(alike),
                         [&](const at::Tensor& tensor) { return tensor.scalar_type() == dtype; });
    all_reduce_coalesced(comm, alike, ReduceOp::kAvg);
  }
}

void broadcast_all(const Communicator& comm, std::span<const at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  broadcast_coalesced(comm, tensors);
}

std::vector<at::Tensor> host_copies(std::span<const at::Tensor> tensors) {
  std::vector<at::Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().cpu());
  return copies;
}

template <class Perform>
void perform_on_host(std::span<const at::Tensor> tensors, const Perform& perform) {
  const at::NoGradGuard no_grad;
  auto copies = host_copies(tensors);
  perform(copies);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].is_cpu()) tensors[i].detach().copy_(copies[i]);
}

}  // namespace

std::shared_ptr<ProgramCollectives> ProgramCollectives::make(const Communicator& comm) {
  if (comm.size() == 1) return nullptr;
  const bool can_call = xla_library().calls_host();
  require_equal_across_ranks({can_call ? "calls the host" : "does not call the host"}, comm,
                             {.what = "the ranks' PJRT plug-ins differ",
                              .hint = "give every rank the same plug-in, or set reduce_in_program = false"});
  if (!can_call) return nullptr;
  std::vector<int> ranks(static_cast<std::size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<ProgramCollectives>(*comm.new_group(ranks));
}

ProgramCollectives::ProgramCollectives(Communicator group)
    : group_(std::move(group)),
      average_(xla_library().add_host_function(
          [comm = group_](std::span<const at::Tensor> tensors) { average_all(comm, tensors); })),
      broadcast_(xla_library().add_host_function(
          [comm = group_](std::span<const at::Tensor> tensors) { broadcast_all(comm, tensors); })) {}

ProgramCollectives::~ProgramCollectives() {
  xla_library().remove_host_function(average_);
  xla_library().remove_host_function(broadcast_);
}

void ProgramCollectives::average(std::span<const at::Tensor> tensors) const {
  std::vector<at::Tensor> call;
  std::int64_t bytes = 0;
  const auto record = [&] {
    xla_library().record_host_call(average_, call, /*ends_step=*/false);
    call.clear();
    bytes = 0;
  };
  for (const auto& tensor : tensors | std::views::reverse) {
    call.push_back(tensor);
    bytes += static_cast<std::int64_t>(tensor.nbytes());
    if (bytes >= kBytesPerCall) record();
  }
  if (!call.empty()) record();
}

void ProgramCollectives::broadcast(std::span<const at::Tensor> tensors) const {
  if (!tensors.empty()) xla_library().record_host_call(broadcast_, tensors, /*ends_step=*/true);
}

void average_on_host(const Communicator& comm, std::span<const at::Tensor> tensors) {
  perform_on_host(tensors, [&](const std::vector<at::Tensor>& copies) { average_all(comm, copies); });
}

void broadcast_on_host(const Communicator& comm, std::span<const at::Tensor> tensors) {
  perform_on_host(tensors, [&](const std::vector<at::Tensor>& copies) { broadcast_all(comm, copies); });
}

}  // namespace lockstep::detail
