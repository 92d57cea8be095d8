// StateTrees as they are in files: as JSON with their tensors left out, in the pickles of torch.save, and in
// checkpoints of DeepSpeed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/formats/torch_file.h>
#include <lockstep/state/state_tree.h>

#include "formats/zero_checkpoint.h"

namespace lockstep::detail {

// A StateTree as JSON, with its tensors left out and named by their path.
//
// Integers, finite numbers, bools and strings are JSON's own, and lists are arrays. What JSON has not is an
// object of one key: {"tree": {...}}, {"tensor": PATH}, {"number": "inf"}, {"bytes": HEX}, and {"string":
// HEX} for a string that is no UTF-8.

/// The part of a tensor that a rank has.
struct TensorLeaf {
  TensorShard run;
  bool is_whole = true;  ///< it is the whole tensor, in its own shape
};

/// Tensors by path: names with "/" between them.
using TensorLeaves = std::map<std::string, TensorLeaf>;

/// `value` as JSON. Adds its tensors to `tensors`, under paths that begin with `path`.
/// @throws CheckpointError naming the path of what a checkpoint cannot store or read again: a name that is no
/// UTF-8, a tensor without memory or of a type that the files lack, two tensors of one path, too many levels
nlohmann::ordered_json to_json(const StateValue& value, const std::string& path, TensorLeaves& tensors);

/// Returns the tensor or shard of a path. `wanted` is the value that the wanted tree has there, or null.
using TensorSource = std::function<StateValue(const std::string& path, const StateValue* wanted)>;

/// The value that to_json() has written. `wanted`, which may be null, is walked along. @throws
/// CheckpointError naming what cannot be
StateValue from_json(const nlohmann::ordered_json& json, const StateValue* wanted,
                     const TensorSource& tensors);

/// Makes StateTrees of the content of a file of torch.save. The tensors do not refer to the file.
class StateOfPickle {
 public:
  /// `where` names the file in errors. Both arguments must outlive this object.
  StateOfPickle(const torch_file::Contents& contents, const std::string& where)
      : contents_(contents), where_(where) {}

  /// Values that are not read become StateTree::unread(), among them dicts inside `dict` with keys that are
  /// neither text nor integers.
  /// @throws CheckpointError for keys that are neither text nor integers, or equal as text
  StateTree tree(const pickle::Dict& dict);
  StateValue value(const pickle::Value& value);
  /// Tensors of one storage share memory, and so do its conjugated, or negated, views of one type.
  at::Tensor tensor(const pickle::Tensor& tensor);

 private:
  template <class Items>
  StateList list(const Items& items);
  [[noreturn]] void refuse(const std::string& what, const std::string& got) const;
  StateTree named(const pickle::Dict& dict);

  const torch_file::Contents& contents_;
  const std::string& where_;
  std::unordered_map<std::string, at::Tensor> storages_;                                // their bytes, by key
  std::map<std::tuple<std::string, at::ScalarType, bool, bool>, at::Tensor> resolved_;  // conjugated, negated
};

/// Makes values for a file of torch.save out of state, which must outlive them.
class PickleOfState {
 public:
  /// `has_integers`: names that are integers become such keys.
  /// @throws CheckpointError naming what Python could not read: what was not read, text that is no UTF-8
  pickle::Dict dict(const StateTree& tree, bool has_integers = false);
  pickle::Value value(const StateValue& value);
  /// The storages of all tensors so far, each with its bytes.
  const std::vector<torch_file::StorageBytes>& storages() const { return storages_; }

 private:
  /// What makes two tensors the same one: address, element type, shape, strides, and whether signs are to be
  /// changed, or it is to be conjugated.
  using Identity = std::tuple<const void*, at::ScalarType, std::vector<std::int64_t>,
                              std::vector<std::int64_t>, bool, bool>;

  pickle::Value tensor(const at::Tensor& tensor);
  pickle::Tensor store(const at::Tensor& tensor);

  std::map<Identity, pickle::Tensor> stored_;
  std::vector<at::Tensor> contiguous_;  // keeps the bytes alive
  std::vector<torch_file::StorageBytes> storages_;
};

/// The weights in float32. Of tensors that are TensorShards in `wanted`, just these runs.
/// @throws CheckpointError as zero_weights()
LOCKSTEP_API StateTree deepspeed_model(const ZeroCheckpoint& checkpoint, const StateTree& wanted);

/// `own`, the state of an optimizer, with the values that the checkpoint has for it: the state of each
/// parameter, as TensorShards where `own` has some, and lr, weight_decay and betas of the groups. A group of
/// `own` whose parameters had different values of such a setting keeps its own value; with `warns`, which one
/// rank should set, a warning says so.
/// @throws CheckpointError as ZeroOptimizer; naming parameter or kind of state that is not there
LOCKSTEP_API StateTree deepspeed_optimizer(const ZeroCheckpoint& checkpoint, const StateTree& own,
                                           bool warns);

/// `own`, the state of a scheduler, set to the step that the checkpoint's scheduler had reached; empty where
/// the checkpoint has none.
/// @throws CheckpointError when the checkpoint does not contain that step
LOCKSTEP_API StateTree deepspeed_scheduler(const ZeroCheckpoint& checkpoint, const StateTree& own);

/// The other values that the program and DeepSpeed have saved: global_steps, global_samples, skipped_steps,
/// lr_scheduler, and the program's client_state.
/// @throws CheckpointError for values that no StateTree holds
LOCKSTEP_API StateTree deepspeed_client_state(const ZeroCheckpoint& checkpoint);

}  // namespace lockstep::detail
