// Writes files of weights, one tensor at a time: in float32 from elements in other files, or from what gives
// the bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include <lockstep/base/export.h>

#include "formats/safetensors_header.h"
#include "formats/zero_checkpoint.h"

namespace lockstep::detail {

/// A tensor that is to be written.
struct WeightSource {
  safetensors::TensorHead head;
  std::function<void(const ByteSink&)> write;  ///< passes its bytes to the sink when they are wanted
};

/// Writes `file`, completely or not at all. @throws CheckpointError, IoError as safetensors::write()
LOCKSTEP_API void write_safetensors(const std::filesystem::path& file,
                                    std::span<const StoredTensorView> tensors);

/// The same, as a dict that torch.load reads. Tied tensors share a storage.
LOCKSTEP_API void write_state_dict(const std::filesystem::path& file,
                                   std::span<const StoredTensorView> tensors);

/// Writes `folder`, completely or not at all: model.safetensors, or as many files of up to `max_bytes` of
/// tensors as it takes, with an index, as Hugging Face's tools do. A larger tensor has a file of its own.
/// @throws IoError when there is a folder with files; CheckpointError
LOCKSTEP_API void write_sharded(const std::filesystem::path& folder,
                                std::span<const StoredTensorView> tensors, std::uint64_t max_bytes);

/// The same with other tensors, and with the files that `add_files` puts into the folder that it is given.
LOCKSTEP_API void write_sharded(const std::filesystem::path& folder, std::span<const WeightSource> tensors,
                                std::uint64_t max_bytes,
                                const std::function<void(const std::filesystem::path&)>& add_files);

}  // namespace lockstep::detail
