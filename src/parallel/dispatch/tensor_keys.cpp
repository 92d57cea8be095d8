#include "parallel/dispatch/tensor_keys.h"

#include <lockstep/torch.h>

#include "parallel/dispatch/use_key.h"

namespace lockstep::detail {

// Keys can only be changed by giving a tensor the contents of another, here its own with other keys.
void set_keys(const at::Tensor& tensor, c10::DispatchKeySet keys) {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard guard(use_key());
  auto twin = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), keys, tensor.dtype());
  twin.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  twin.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  tensor.set_data(twin);
}

}  // namespace lockstep::detail
