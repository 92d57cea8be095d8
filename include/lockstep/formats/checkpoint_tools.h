// What can be done with checkpoints without LibTorch: inspecting and comparing them, counting their
// parameters, and writing their weights to other files, also those of checkpoints of DeepSpeed.
// https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/utils/zero_to_fp32.py
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/formats/checkpoint_info.h>

namespace lockstep {

/// A description of the checkpoint in `folder` for users: a line for each file, tensor and value. `folder`
/// may also be a safetensors file, or a file of torch.save, of which the description also names what is not
/// read.
/// @throws IoError when it cannot be read; CheckpointError when it is damaged
LOCKSTEP_API std::string describe_checkpoint(const std::filesystem::path& folder,
                                             Verify verify = Verify::kAll);

/// How two checkpoints, run directories or safetensors files differ, a line for each tensor, value or option
/// of the configuration, as `-` and `+` of a diff. Of a run directory its config.yaml counts and, where it
/// has one, its last checkpoint. Empty when their contents are equal, whatever the ranks that wrote them and
/// the folders that runs wrote to.
/// @throws as describe_checkpoint()
LOCKSTEP_API std::vector<std::string> compare_checkpoints(const std::filesystem::path& before,
                                                          const std::filesystem::path& after);

/// Writes all tensors of `entry`, such as "model", whole, to the safetensors file `file`. Blocking.
/// @throws as describe_checkpoint(); CheckpointError when there is no such entry; ConfigError when the name
/// of
///   `file` does not end with .safetensors
LOCKSTEP_API void consolidate_checkpoint(const std::filesystem::path& folder, const std::string& entry,
                                         const std::filesystem::path& file);

/// In elements of floating point; buffers, such as a batch normalisation's means, are counted as parameters.
struct ModelSize {
  std::int64_t parameters = 0;     ///< elements of all parameters
  std::int64_t largest_layer = 0;  ///< the parameters of one module, without its children

  // Of repeated blocks, such as `layers.0`, `layers.1`, ...: the units of fsdp. All 0 where there are none.
  std::int64_t units = 0;         ///< repeated blocks
  std::int64_t largest_unit = 0;  ///< parameters of one
  std::int64_t in_units = 0;      ///< parameters of all of them together

  /// Numbers that matrices take in and give for one token: rows and columns of all of them. Of those outside
  /// of units the columns, and for the scores at the end three times the rows of the largest.
  std::int64_t features = 0;
};

/// The size of the model in a safetensors file or a folder of them, in a checkpoint of lockstep, in the one
/// that `latest` names in a folder, or in the last one of a run directory. Matrices with equal elements count
/// once, such as an embedding and the head that is tied to it. Blocking.
/// @throws IoError when it cannot be read; CheckpointError when it is damaged, or holds no model
LOCKSTEP_API ModelSize model_size(const std::filesystem::path& path);

/// How weights are made of a checkpoint of DeepSpeed.
struct ZeroToFp32Options {
  std::string tag = {};  ///< which of the folder's checkpoints; empty: the one that `latest` names
  /// Most bytes of tensors in a file of a folder that is written; none: 5 GB.
  std::optional<std::uint64_t> max_shard_bytes = {};
  bool exclude_frozen_parameters = false;  ///< leave out what is not trained
};

/// Writes the weights in `folder`, in float32 (integers stay what they are), to `output`, completely or not
/// at all: NAME.safetensors; a dict of torch.save (.pt, .pth, .bin, .ckpt); else a folder with
/// model.safetensors, or several such files and an index, as Hugging Face has it.
///
/// `folder` holds checkpoints of DeepSpeed, of any stage and number of ranks, or is one: what DeepSpeed's
/// zero_to_fp32.py gives has the same bits. A checkpoint of lockstep will do, too. What is read is compared
/// with its checksums. Files are mapped; memory is for one tensor, where it is converted. Blocking.
/// @throws IoError; CheckpointError naming file and rank of what is missing, damaged or does not fit;
/// ConfigError
///   naming the option
LOCKSTEP_API void zero_to_fp32(const std::filesystem::path& folder, const std::filesystem::path& output,
                               const ZeroToFp32Options& options = {});

/// The bytes that a size such as "5GB" says: digits and KB, MB, GB or TB, powers of ten. @throws ConfigError
LOCKSTEP_API std::uint64_t parse_shard_size(const std::string& text);

}  // namespace lockstep
