// The number of parameters of a model whose weights are in a file, without LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/base/export.h>

namespace lockstep {

/// In elements of floating point; buffers, such as a batch normalisation's means, are counted as parameters.
struct ModelSize {
  std::int64_t parameters = 0;
  std::int64_t largest_layer = 0;  ///< the parameters of one module, without its children
};

/// The size of the model in a safetensors file, in a checkpoint of lockstep, or in the checkpoint that
/// `latest` names in a folder. Matrices with equal elements count once, such as an embedding and the head
/// that is tied to it. Blocking.
/// @throws IoError when it cannot be read; CheckpointError when it is damaged, or holds no model
LOCKSTEP_API ModelSize model_size(const std::filesystem::path& path);

}  // namespace lockstep
