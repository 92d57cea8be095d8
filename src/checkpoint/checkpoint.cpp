#include <lockstep/checkpoint/checkpoint.h>

#include <lockstep/base/error.h>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/open_together.h"
#include "checkpoint/state_json.h"

namespace lockstep {
namespace {

// Gives tensors as `files` have them, whatever is wanted.
detail::TensorSource whole_tensors(const detail::CheckpointFiles& files) {
  return [&](const std::string& path, const StateValue*) { return detail::tensor_in(files, path); };
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& folder, Verify verify)
    : files_(std::make_shared<const detail::CheckpointFiles>(folder, verify)) {}

Checkpoint::Checkpoint(const std::filesystem::path& folder, Verify verify, const Communicator& communicator)
    : files_(detail::open_together(folder, verify, communicator)) {}

const CheckpointInfo& Checkpoint::info() const { return files_->manifest().info; }
const std::filesystem::path& Checkpoint::folder() const { return files_->folder(); }

StateTree Checkpoint::shared() const { return shared({}); }

StateTree Checkpoint::shared(const StateTree& wanted) const {
  const auto source = [&](const std::string& path, const StateValue* value) -> StateValue {
    const auto* shard = value ? std::get_if<TensorShard>(value) : nullptr;
    // Of another shape it comes as it is: who compares it names both.
    const bool fits = shard != nullptr && files_->record(path).shape == shard->shape;
    if (!fits) return detail::tensor_in(*files_, path);
    return TensorShard{.elements = detail::run_in(*files_, path, shard->begin, shard->elements.numel()),
                       .shape = shard->shape,
                       .begin = shard->begin};
  };
  StateTree tree;
  for (const auto& [name, value] : files_->manifest().shared.items())
    tree.set(name, detail::from_json(value, wanted.find(name), source));
  return tree;
}

StateTree Checkpoint::entry(const std::string& name) const {
  const auto& entries = files_->manifest().shared;
  const auto found = entries.find(name);
  if (found != entries.end()) {
    const auto value = detail::from_json(*found, nullptr, whole_tensors(*files_));
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
  const auto value =
      detail::from_json(ranks[static_cast<std::size_t>(rank)], nullptr, whole_tensors(*files_));
  if (const auto* tree = std::get_if<StateTree>(&value)) return *tree;
  throw CheckpointError("checkpoint", {.what = "the state of a rank in manifest.json", .expected = "a tree"});
}

}  // namespace lockstep
