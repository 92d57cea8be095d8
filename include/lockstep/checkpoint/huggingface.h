// Models from elsewhere, in both directions: the weights in a folder of Hugging Face's transformers go into a
// module whose tensors have other names, and from a module back into such a folder.
//
//   const ls::WeightNames names{
//       {.theirs = "transformer.h.*.attn.c_attn.weight", .ours = "blocks.*.attention.weight", .transpose =
//       true},
//       {.theirs = "transformer.h.*.attn.c_attn.bias", .ours = "blocks.*.attention.bias"},
//       {.theirs = "transformer.h.*.attn.bias", .ours = ""}};  // left out
//   ls::load_weights("gpt2/", *model, names);
//   ls::write_huggingface("tuned/", ls::named_tensors(*model), names, {.like = "gpt2/"});
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include <lockstep/base/export.h>
#include <lockstep/checkpoint/weight_names.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/state/module_state.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

/// As load_weights() of weights.h, for weights whose names `names` translates. What is returned, and what
/// errors name, are names of the file. Not Collective.
/// @throws ConfigError for a row whose names have not as many `*`; IoError; CheckpointError naming file and
///   tensors that are missing, extra, or of another shape or dtype, and two that get the same name; nothing
///   is copied then
LOCKSTEP_API IncompatibleKeys load_weights(const std::filesystem::path& path, torch::nn::Module& module,
                                           const WeightNames& names, bool strict = true);

/// How a folder of Hugging Face is written.
struct HuggingFaceOptions {
  /// A folder of Hugging Face whose other files are copied: config.json, in which the element type becomes
  /// that of the weights, and those of tokenizers and processors (*.json, *.txt, *.model, *.jinja). Empty:
  /// weights alone.
  std::filesystem::path like = {};
  std::uint64_t max_shard_bytes = 5'000'000'000;  ///< of tensors in one file; a larger one has its own
  std::optional<at::ScalarType> dtype = {};       ///< of floating-point tensors; none: what they have
};

/// Writes `folder`, completely or not at all, as transformers' save_pretrained() does: model.safetensors, or
/// several files and model.safetensors.index.json. Blocking. Not Collective: one rank calls it, with whole
/// tensors, such as those of Strategy::module_state().
/// @throws ConfigError as load_weights(), and for a size of 0; IoError when there is a folder with files;
///   CheckpointError naming the tensor: two of one name, no two dimensions to swap, a type that the format
///   lacks
LOCKSTEP_API void write_huggingface(const std::filesystem::path& folder, const NamedTensors& tensors,
                                    const WeightNames& names = {}, const HuggingFaceOptions& options = {});

/// The same with the weights in `from`, of any format that read_weights() reads, such as a checkpoint of
/// ours, written by any strategy on any number of ranks. Reads one tensor at a time, but a checkpoint of ours
/// as a whole.
LOCKSTEP_API void convert_to_huggingface(const std::filesystem::path& from,
                                         const std::filesystem::path& folder, const WeightNames& names = {},
                                         const HuggingFaceOptions& options = {});

/// A JSON file whose top is an object, such as config.json: as read_torch_file() has dicts, without what is
/// null (in a list: an empty tree).
/// @throws IoError when it cannot be read; CheckpointError naming the file when it is no such JSON
LOCKSTEP_API StateTree read_json(const std::filesystem::path& file);

}  // namespace lockstep
