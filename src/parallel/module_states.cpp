#include "parallel/module_states.h"

#include <functional>
#include <sstream>
#include <unordered_set>

#include <lockstep/base/error.h>
#include <lockstep/comm/coalesced.h>

#include "parallel/deferred/deferred_tensor.h"

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

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + '\n';
  return text;
}

std::string line_or_end(std::istringstream& text) {
  std::string line;
  return std::getline(text, line) ? line : "nothing more";
}

[[noreturn]] void name_difference(const std::string& first, const std::string& other, std::size_t rank) {
  std::istringstream left(first), right(other);
  std::string expected, got;
  do {
    expected = line_or_end(left);
    got = line_or_end(right);
  } while (expected == got);
  throw CollectiveMismatch("parallel", {.what = "the ranks' modules differ",
                                        .expected = expected + " on rank 0",
                                        .got = got + " on rank " + std::to_string(rank),
                                        .where = "",
                                        .hint = "every rank must build the same module"});
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

// Descriptions may be long; unless their hashes differ, only those travel.
void compare_states(const ModuleStates& states, const Communicator& comm) {
  if (comm.size() == 1) return;
  const auto mine = joined(describe(states));
  const auto hashes = comm.all_gather_bytes(std::to_string(std::hash<std::string>{}(mine)));
  if (std::equal(hashes.begin() + 1, hashes.end(), hashes.begin())) return;
  const auto descriptions = comm.all_gather_bytes(mine);
  for (std::size_t rank = 1; rank < descriptions.size(); ++rank) {
    if (descriptions[rank] != descriptions[0]) name_difference(descriptions[0], descriptions[rank], rank);
  }
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
