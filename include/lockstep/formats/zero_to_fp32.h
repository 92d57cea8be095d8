// Checkpoints of DeepSpeed, and of lockstep, as weights in float32, without LibTorch, Python or DeepSpeed.
// https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/utils/zero_to_fp32.py
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep {

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
