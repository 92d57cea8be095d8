// The tensors of a module by name, and comparisons between ranks.
#include "parallel/module_states.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <unordered_set>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/comm/packed_collectives.h>
#include <lockstep/torch.h>

#include "base/format.h"
#include "parallel/deferred/deferred_tensor.h"
#include "state/module_tensors.h"

namespace lockstep::detail {
namespace {

std::string line_or_end(std::istringstream& text) {
  std::string line;
  return std::getline(text, line) ? line : "nothing more";
}

[[noreturn]] void name_difference(const std::string& first, const std::string& other, std::size_t rank,
                                  const DifferenceWords& words) {
  std::istringstream left(first), right(other);
  std::string expected, got;
  do {
    expected = line_or_end(left);
    got = line_or_end(right);
  } while (expected == got);
  throw CollectiveMismatch("parallel", {.what = words.what,
                                        .expected = expected + " on rank 0",
                                        .got = got + " on rank " + std::to_string(rank),
                                        .where = "",
                                        .hint = words.hint});
}

}  // namespace

// They may be many; unless their hashes differ, only those travel.
void require_equal_across_ranks(const std::vector<std::string>& lines, const Communicator& comm,
                                const DifferenceWords& words) {
  if (comm.size() == 1) return;
  const auto mine = lockstep::joined(lines, "\n");
  const auto hashes = comm.all_gather_bytes(std::to_string(std::hash<std::string>{}(mine)));
  if (std::equal(hashes.begin() + 1, hashes.end(), hashes.begin())) return;
  const auto all = comm.all_gather_bytes(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) name_difference(all[0], all[rank], rank, words);
  }
}

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
  require_equal_across_ranks(
      describe(states), comm,
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

namespace {

constexpr std::int64_t kAlwaysUntil = 10;  // calls that look at the module's lists, and then each
constexpr std::int64_t kEvery = 100;       // hundredth: that costs a microsecond per parameter

}  // namespace

void refuse_change(const ChangeWords& words, const std::string& what, std::string expected, std::string got) {
  throw ConfigError("parallel",
                    {.what = "the module changed after it was set up for " + words.set_up_for + ": " + what,
                     .expected = std::move(expected),
                     .got = std::move(got),
                     .hint = words.hint});
}

ModuleLists::ModuleLists(const torch::nn::Module& module, const ModuleStates& states, ChangeWords words)
    : module_(module.weak_from_this()), then_(states), words_(std::move(words)) {}

void ModuleLists::check() {
  const auto call = calls_++;
  if (call >= kAlwaysUntil && call % kEvery != 0) return;
  const auto module = module_.lock();
  if (!module) return;
  const ModuleStates now(*module);
  compare("parameter", now.parameters, then_.parameters);
  compare("buffer", now.buffers, then_.buffers);
}

void ModuleLists::compare(const char* kind, const std::vector<NamedTensor>& now,
                          const std::vector<NamedTensor>& then) const {
  for (std::size_t i = 0; i < std::max(now.size(), then.size()); ++i) {
    const bool is_same = i < now.size() && i < then.size() && now[i].name == then[i].name;
    if (is_same && now[i].tensor.is_same(then[i].tensor)) continue;
    const std::string prefix = std::string(kind) + " ";
    if (is_same) refuse_change(words_, prefix + now[i].name, "the tensor that was set up", "another one");
    const bool is_added = now.size() > then.size() || i >= then.size();
    if (is_added) refuse_change(words_, prefix + now[i].name, "not there", "added");
    refuse_change(words_, prefix + then[i].name, "there", "removed");
  }
}

}  // namespace lockstep::detail
