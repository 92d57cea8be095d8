// Checkpoint files of Python, read and written: PyTorch's .pt and .pth, Lightning's .ckpt, folders of
// Hugging Face and of torch.distributed.checkpoint. Reading executes nothing: only tensors and plain values
// are known. What else a file holds, such as objects of classes, is StateTree::unread() in its place: whoever asks
// for it gets an error that names it.
//
// What Python has and a StateTree has not: None is left out (in a list: an empty tree); keys that are
// integers become text; tuples and sets become lists; element types and devices become text.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// The weights in `path`, on the CPU, under the names that they have there. Its content tells what it is: a
/// safetensors file, a checkpoint of ours (its "model"; every byte of it is checked), one of DeepSpeed (in
/// float32; also the folder with its `latest`), a folder of Hugging Face (model.safetensors, also in several
/// files with an index), or a state_dict by torch.save (.pt, .pth), also one inside a checkpoint of Lightning
/// (.ckpt).
/// @throws IoError when it cannot be read; CheckpointError naming file and tensor
LOCKSTEP_API NamedTensors read_weights(const std::filesystem::path& path);

/// The dict that `torch.save` wrote to `file`, such as a state_dict or a checkpoint of Lightning, with
/// tensors of its own on the CPU. Tensors that shared memory when they were saved share it again. Of what is no
/// dict, the items of a list or tuple are "0", "1" and so on, a tensor is "tensor", all else "value". Blocking.
/// @throws IoError when the file cannot be read; CheckpointError naming what is wrong with it: no file of
///     torch.save, or damaged
LOCKSTEP_API StateTree read_torch_file(const std::filesystem::path& file);

/// Writes `state` to `file`, completely or not at all, as a dict that `torch.load` reads with its defaults.
/// Every tensor is stored without gaps, and one that occurs twice is stored once. Names are written as text,
/// except those that an optimizer's state_dict has as integers: in a tree with `state` and `param_groups`,
/// the names in `state` that are numbers. Blocking. Not Collective: one rank calls it.
/// @throws CheckpointError for what cannot be written: a tensor that is sparse, say, or a value that is
///     StateTree::unread(); IoError
LOCKSTEP_API void write_torch_file(const std::filesystem::path& file, const StateTree& state);

/// Writes `checkpoint` as write_torch_file() does, so that Lightning loads it: `load_from_checkpoint`, and
/// `fit(ckpt_path=...)`, for which it needs `optimizer_states` and `lr_schedulers`, lists of what Python's
/// state_dict() gives. `state_dict` is obligatory; `epoch`, `global_step` and what else Lightning wants is
/// added where it lacks. Such a file is read by read_torch_file(). Not Collective: one rank calls it.
/// @throws CheckpointError when there is no state_dict, and as write_torch_file(); IoError
LOCKSTEP_API void write_lightning_checkpoint(const std::filesystem::path& file, const StateTree& checkpoint);

/// How names of tensors in a file become those of a model.
struct Rename {
  std::string pattern;      ///< regular expression (ECMAScript) that the whole name matches
  std::string replacement;  ///< the new name; $1, $2, ... are the groups. Empty: the tensor is left out
  bool transpose = false;   ///< swap the two dimensions, as for GPT-2's Conv1D, whose weights lie so
};

/// The tensors of a folder of Hugging Face (`model.safetensors`, or several files and
/// `model.safetensors.index.json`) or of one safetensors file. The first row of `renames` that matches gives
/// a tensor its name; it keeps it where none does. Blocking.
/// @throws ConfigError for a pattern that is none; IoError; CheckpointError naming file and tensor: damaged,
/// two
///     tensors of one name, a transposed tensor that has not two dimensions
LOCKSTEP_API NamedTensors read_huggingface(const std::filesystem::path& folder,
                                           std::span<const Rename> renames = {});

/// What `torch.distributed.checkpoint.save` wrote to `folder`, on any number of ranks: every tensor whole, in
/// trees as they were saved. Items of lists that held tensors are a tree by their numbers. Blocking.
/// @throws IoError when a file cannot be read; CheckpointError naming file and entry
LOCKSTEP_API StateTree read_distributed_checkpoint(const std::filesystem::path& folder);

}  // namespace lockstep
