#include "parallel/sharded/late_parameters.h"

#include <algorithm>

#include <lockstep/comm/coalesced.h>
#include <lockstep/torch.h>

#include "parallel/deferred/deferred_tensor.h"
#include "parallel/sharded/shardable.h"

namespace lockstep::detail {

LateParameters::LateParameters(const ModuleStates& states, const Communicator& comm, bool are_synced)
    : comm_(comm), are_synced_(are_synced && comm.size() > 1) {
  find(states);
  auto others = states;
  std::erase_if(others.parameters,
                [this](const auto& named) { return late_.contains(named.tensor.unsafeGetTensorImpl()); });
  materialize_states(others);
  if (are_synced_) broadcast_states(others, comm_);
}

// Only floating-point parameters are sharded.
void LateParameters::find(const ModuleStates& states) {
  std::string flags;
  for (const auto& named : states.parameters)
    flags += is_deferred(named.tensor) && is_sharded_type(named.tensor.scalar_type()) ? '1' : '0';
  const auto all = are_synced_ ? comm_.all_gather_bytes(flags) : std::vector{flags};
  for (std::size_t i = 0; i < states.parameters.size(); ++i) {
    const auto is_late = [i](const std::string& of_rank) { return of_rank[i] == '1'; };
    if (std::ranges::any_of(all, is_late)) late_.insert(states.parameters[i].tensor.unsafeGetTensorImpl());
  }
}

void LateParameters::fetch(const at::Tensor& parameter) const {
  if (!late_.contains(parameter.unsafeGetTensorImpl())) return;
  const bool is_overwritten = are_synced_ && comm_.rank() > 0;
  if (is_overwritten && is_deferred(parameter)) give_memory(parameter);
  materialize(parameter);
  if (are_synced_) broadcast_coalesced(comm_, std::span(&parameter, 1));
}

}  // namespace lockstep::detail
