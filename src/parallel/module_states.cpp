#include "parallel/module_states.h"

#include <sstream>
#include <unordered_set>

#include <lockstep/base/error.h>
#include <lockstep/comm/coalesced.h>
#include <lockstep/torch.h>

#include "parallel/deferred/deferred_tensor.h"
#include "parallel/same_lines.h"
#include "state/shared_elements.h"

namespace lockstep::detail {
namespace {

// Tied parameters are listed once per name by LibTorch.
template <class Dict>
std::vector<NamedTensor> unique_tensors(const Dict& dict) {
  std::vector<NamedTensor> tensors;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& item : dict) {
    if (!item.value().defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    tensors.push_back({item.key(), item.value()});
  }
  return tensors;
}

std::string describe(const char* kind, const NamedTensor& named) {
  std::ostringstream text;
  const auto& tensor = named.tensor;
  text << kind << ' ' << named.name << ' ' << tensor.sizes() << ' ' << tensor.scalar_type();
  if (!tensor.is_contiguous()) text << " of strides " << tensor.strides();
  if (!tensor.is_cpu()) text << " on " << tensor.device().type();
  if (named.tensor.requires_grad()) text << " (trained)";
  return text.str();
}

std::vector<std::string> describe(const ModuleStates& states) {
  std::vector<std::string> lines;
  for (const auto& named : states.parameters) lines.push_back(describe("parameter", named));
  for (const auto& named : states.buffers) lines.push_back(describe("buffer", named));
  return lines;
}

void require_writable(const char* kind, const NamedTensor& named) {
  const auto& tensor = named.tensor;
  const bool is_dense = tensor.layout() == at::kStrided;
  if (is_dense && !has_shared_elements(tensor)) return;
  throw ConfigError(
      "parallel",
      {.what = kind + (" " + named.name) + " cannot be made the same on all ranks",
       .expected = "a dense tensor whose elements lie apart",
       .got = is_dense ? c10::str("sizes ", tensor.sizes(), " with strides ", tensor.strides(),
                                  ", by which several elements share memory")
                       : c10::str("layout ", tensor.layout()),
       .hint = "register a dense, contiguous() copy of it, or hold it as a member that is not registered"});
}

std::vector<at::Tensor> all_tensors(const ModuleStates& states) {
  std::vector<at::Tensor> tensors;
  for (const auto& named : states.parameters) tensors.push_back(named.tensor);
  for (const auto& named : states.buffers) tensors.push_back(named.tensor);
  return tensors;
}

}  // namespace

ModuleStates::ModuleStates(const torch::nn::Module& module)
    : parameters(unique_tensors(module.named_parameters())),
      buffers(unique_tensors(module.named_buffers())) {}

void require_writable(const ModuleStates& states) {
  for (const auto& parameter : states.parameters) require_writable("parameter", parameter);
  for (const auto& buffer : states.buffers) require_writable("buffer", buffer);
}

void compare_states(const ModuleStates& states, const Communicator& comm) {
  require_same_lines(describe(states), comm,
                     {.what = "the ranks' modules differ", .hint = "every rank must build the same module"});
}

void materialize_states(const ModuleStates& states) {
  for (const auto& tensor : all_tensors(states)) {
    materialize(tensor);
    forget_deferral(tensor);
  }
}

void broadcast_states(const ModuleStates& states, const Communicator& comm) {
  broadcast_coalesced(comm, all_tensors(states));
}

}  // namespace lockstep::detail
