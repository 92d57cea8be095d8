#include "parallel/sharded/shardable.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include <lockstep/base/error.h>
#include <lockstep/comm/packed_collectives.h>
#include <lockstep/torch.h>

#include "parallel/deferred/deferred_tensor.h"
#include "parallel/dispatch/operator_dispatch.h"
#include "parallel/sharded/residency.h"

namespace lockstep::detail {
namespace {

bool is_sharded(const at::Tensor& tensor) {
  TensorUses uses;
  mark_table().find(tensor.storage().unsafeGetStorageImpl(), /*is_written=*/false, uses);
  return std::ranges::any_of(
      uses, [](const TensorUse& use) { return dynamic_cast<Residency*>(&use.mark->handler()) != nullptr; });
}

}  // namespace

at::Device device_of(const ModuleStates& states) {
  const auto first = std::ranges::find_if(
      states.parameters, [](const auto& each) { return is_sharded_type(each.tensor.scalar_type()); });
  return first == states.parameters.end() ? at::Device(at::kCPU) : first->tensor.device();
}

namespace {

void check_parameters(const ModuleStates& states) {
  for (const auto& [name, tensor] : states.parameters) {
    if (tensor.requires_grad() && !is_sharded_type(tensor.scalar_type())) {
      throw ConfigError("parallel",
                        {.what = "parameter " + name + " cannot be sharded",
                         .expected = "float64, float32, float16 or bfloat16, as it is trained",
                         .got = c10::str(tensor.scalar_type()),
                         .hint = "register view_as_real() of it, and make it complex in forward"});
    }
    const bool is_elsewhere = is_sharded_type(tensor.scalar_type()) && tensor.device() != device_of(states);
    if (is_elsewhere || tensor.layout() != at::kStrided) {
      throw ConfigError("parallel", {.what = "parameter " + name + " cannot be sharded",
                                     .expected = c10::str("a dense tensor on ", device_of(states),
                                                          ", where the first parameter is"),
                                     .got = c10::str(tensor.layout(), " on ", tensor.device())});
    }
    if (tensor.is_neg() && is_sharded_type(tensor.scalar_type())) {
      throw ConfigError("parallel", {.what = "parameter " + name + " cannot be sharded",
                                     .expected = "a tensor that lies in memory as it is",
                                     .got = "a view that negates another tensor's memory",
                                     .hint = "register a clone() of it"});
    }
    if (is_sharded(tensor)) {
      throw ConfigError("parallel", {.what = "parameter " + name + " is sharded already",
                                     .expected = "a module with all its parameters",
                                     .hint = "call restore_sharded() before"});
    }
  }
}

// Each has its memory taken away. Without elements it has none to share.
void check_memory(const ModuleStates& states) {
  std::unordered_map<const void*, std::string> owners;
  for (const auto& [name, tensor] : states.parameters) {
    if (!is_sharded_type(tensor.scalar_type()) || tensor.numel() == 0) continue;
    const auto [other, is_new] = owners.emplace(tensor.storage().unsafeGetStorageImpl(), name);
    if (is_new) continue;
    throw ConfigError("parallel",
                      {.what = "two parameters share memory, which sharding takes away",
                       .expected = "each in memory of its own, or one parameter that is registered twice",
                       .got = name + " in the memory of " + other->second,
                       .hint = "register a clone() of each"});
  }
  for (const auto& [name, tensor] : states.buffers) {
    if (!tensor.has_storage() || tensor.numel() == 0) continue;
    const auto owner = owners.find(tensor.storage().unsafeGetStorageImpl());
    if (owner == owners.end()) continue;
    throw ConfigError("parallel", {.what = "a buffer lies in the memory of a parameter that is to be sharded",
                                   .expected = "a buffer with memory of its own: a copy of the parameter",
                                   .got = "buffer " + name + " in the memory of parameter " + owner->second,
                                   .hint = "use strategy ddp, or make the view in forward"});
  }
}

}  // namespace

bool is_sharded_type(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

void check_shardable(const ModuleStates& states) {
  check_parameters(states);
  check_memory(states);
}

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
