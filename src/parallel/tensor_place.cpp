#include "parallel/tensor_place.h"

#include <lockstep/torch.h>

namespace lockstep::detail {

TensorPlace::TensorPlace(const at::Tensor& tensor)
    : sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()),
      offset(tensor.storage_offset()),
      dtype(tensor.scalar_type()) {}

at::Tensor TensorPlace::in(const c10::Storage& memory) const {
  return at::empty({0}, dtype).set_(memory, offset, sizes, strides);
}

}  // namespace lockstep::detail
