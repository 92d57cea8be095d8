// Errors that say that there is not enough memory.
#pragma once

#include <exception>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Whether a smaller batch may help: LibTorch's allocators on CPU and CUDA, operator new, and cuDNN where
/// its buffers do not fit.
LOCKSTEP_API bool is_out_of_memory(const std::exception& error);

}  // namespace lockstep::detail
