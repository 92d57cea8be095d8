// Whether a tensor can be written to element by element.
#pragma once

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Whether several elements may lie in one place, as those of an expanded tensor do. Of dense tensors.
LOCKSTEP_API bool has_shared_elements(const at::Tensor& tensor);

}  // namespace lockstep::detail
