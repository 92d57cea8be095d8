// The tensors of an open checkpoint.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "formats/checkpoint_files.h"

namespace lockstep::detail {

/// The tensor under `path`, whole. It lies in the file's pages where it can. @throws CheckpointError
at::Tensor tensor_in(const CheckpointFiles& files, const std::string& path);

/// A run of its elements, in row-major order.
at::Tensor run_in(const CheckpointFiles& files, const std::string& path, std::int64_t begin,
                  std::int64_t elements);

}  // namespace lockstep::detail
