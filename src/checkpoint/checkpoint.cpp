#include <lockstep/checkpoint/checkpoint.h>

#include <lockstep/base/error.h>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/state_json.h"

namespace lockstep {
namespace {

// What hangs at `path`, as far as there is such a thing.
const StateValue* find(const StateTree& tree, std::string_view path) {
  const StateTree* at = &tree;
  for (;;) {
    const auto slash = path.find('/');
    const auto* value = at->find(path.substr(0, slash));
    if (value == nullptr || slash == std::string_view::npos) return value;
    at = std::get_if<StateTree>(value);
    if (at == nullptr) return nullptr;
    path.remove_prefix(slash + 1);
  }
}

StateTree tree_from(const nlohmann::ordered_json& entries, const detail::TensorSource& tensors) {
  StateTree tree;
  for (const auto& [name, value] : entries.items()) tree.set(name, detail::from_json(value, tensors));
  return tree;
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& folder, Verify verify)
    : files_(std::make_shared<const detail::CheckpointFiles>(folder, verify)) {}

const CheckpointInfo& Checkpoint::info() const { return files_->manifest().info; }
const std::filesystem::path& Checkpoint::folder() const { return files_->folder(); }

StateTree Checkpoint::shared() const { return shared({}); }

StateTree Checkpoint::shared(const StateTree& wanted) const {
  return tree_from(files_->manifest().shared, [&](const std::string& path) -> StateValue {
    const auto* value = find(wanted, path);
    const auto* shard = value ? std::get_if<TensorShard>(value) : nullptr;
    if (shard == nullptr) return detail::tensor_in(*files_, path);
    return TensorShard{.elements = detail::run_in(*files_, path, shard->begin, shard->elements.numel()),
                       .shape = shard->shape,
                       .begin = shard->begin};
  });
}

StateTree Checkpoint::entry(const std::string& name) const {
  const auto& entries = files_->manifest().shared;
  const auto found = entries.find(name);
  if (found != entries.end()) {
    const auto value =
        detail::from_json(*found, [&](const std::string& path) { return detail::tensor_in(*files_, path); });
    if (const auto* tree = std::get_if<StateTree>(&value)) return *tree;
  }
  std::string known;
  for (const auto& each : entries.items()) known += (known.empty() ? "" : ", ") + each.key();
  throw CheckpointError("checkpoint", {.what = folder().string() + " has no tree \"" + name + "\"",
                                       .expected = "one of " + known});
}

StateTree Checkpoint::own(int rank) const {
  const auto& ranks = files_->manifest().own;
  if (rank < 0 || static_cast<std::size_t>(rank) >= ranks.size()) {
    throw CheckpointError("checkpoint",
                          {.what = folder().string() + " has no state of rank " + std::to_string(rank),
                           .expected = "a rank below " + std::to_string(ranks.size())});
  }
  const auto value = detail::from_json(ranks[static_cast<std::size_t>(rank)], [&](const std::string& path) {
    return detail::tensor_in(*files_, path);
  });
  if (const auto* tree = std::get_if<StateTree>(&value)) return *tree;
  throw CheckpointError("checkpoint", {.what = "the state of a rank in manifest.json", .expected = "a tree"});
}

}  // namespace lockstep
