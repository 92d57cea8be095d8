// How large a model is whose weights lie in a file, without LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/base/export.h>

namespace lockstep {

/// In elements of floating point; buffers, such as a batch normalisation's means, are counted as parameters.
struct ModelSize {
  std::int64_t parameters = 0;
  std::int64_t largest_layer = 0;  ///< those of one module, without its children
};

/// Of a safetensors file, or of the model in a checkpoint of ours, or in that which `latest` names in a
/// folder. Matrices whose elements are equal are one: an embedding and the head that is tied to it. Blocking.
/// @throws IoError when it cannot be read; CheckpointError when it is damaged, or holds no model
LOCKSTEP_API ModelSize model_size(const std::filesystem::path& path);

}  // namespace lockstep
