#include "checkpoint/load_weights.h"

#include <string>
#include <utility>

#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/checkpoint/huggingface.h>
#include <lockstep/checkpoint/interop.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "checkpoint/weight_names.h"
#include "formats/checkpoint_folders.h"
#include "state/module_tensors.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace detail {
namespace {

/// How a file that `names` translates has a tensor of the module: its name there, and its kind.
std::pair<std::string, std::string> in_file(const std::string& name, const at::Tensor& tensor,
                                            const RenamedWeights& weights, const WeightNames& names) {
  const auto found = weights.find(name);
  auto there = to_theirs(names, name);
  auto theirs = found != weights.end() ? found->second.theirs : std::move(there.name);
  auto shape = tensor.sizes().vec();
  if (there.transpose && shape.size() == 2) std::swap(shape[0], shape[1]);
  return {std::move(theirs), tensor_kind(tensor.scalar_type(), shape)};
}

}  // namespace

IncompatibleKeys load_weights(const fs::path& path, const torch::nn::Module& module, const WeightNames& names,
                              bool strict,
                              const std::function<void(const at::Tensor&, const StoredTensor&)>& put) {
  check_rows(names);
  const auto where = "weights in " + path.string();
  const auto stored = stored_weights(path);
  const auto weights = renamed(stored, names, where);
  const auto targets = named_tensors(module);
  TensorKinds own, offered;
  for (const auto& [name, tensor] : targets) own.insert(in_file(name, tensor, weights, names));
  for (const auto& [name, tensor] : weights) {
    const auto& there = stored.at(tensor.theirs);
    offered.emplace(tensor.theirs, tensor_kind(scalar_type(there.dtype), there.shape));
  }
  auto keys = match_tensors(own, offered, strict, where);
  for (const auto& [name, tensor] : targets) {
    if (const auto found = weights.find(name); found != weights.end()) put(tensor, found->second.stored);
  }
  return keys;
}

}  // namespace detail

IncompatibleKeys load_weights(const fs::path& path, torch::nn::Module& module, const WeightNames& names,
                              bool strict) {
  const torch::NoGradGuard no_grad;
  const auto copy = [](const at::Tensor& tensor, const detail::StoredTensor& stored) {
    tensor.copy_(stored.read());
  };
  return detail::load_weights(path, module, names, strict, copy);
}

IncompatibleKeys load_weights(const fs::path& path, torch::nn::Module& module, bool strict) {
  return load_weights(path, module, WeightNames{}, strict);
}

StateTree module_state_in(const fs::path& path) {
  const auto folder = detail::tagged_folder(path);
  std::error_code ignored;
  if (!fs::exists(folder / detail::kManifestName, ignored)) return {};
  const auto own = Checkpoint(folder, Verify::kNeeded).own(0);
  return own.contains("module") ? own.get<StateTree>("module") : StateTree();
}

}  // namespace lockstep
