#include "parallel/dispatch/tensor_keeper.h"

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

namespace {

std::shared_ptr<TensorKeeper>& keeper_of_thread() {
  thread_local std::shared_ptr<TensorKeeper> keeper;
  return keeper;
}

}  // namespace

const std::shared_ptr<TensorKeeper>& tensor_keeper() { return keeper_of_thread(); }

void set_tensor_keeper(const std::shared_ptr<TensorKeeper>& keeper) {
  auto& current = keeper_of_thread();
  if (current != keeper) current = keeper;
}

KeptTensor keep(const at::Tensor& tensor) {
  const auto& keeper = keeper_of_thread();
  return keeper ? keeper->keep(tensor) : KeptTensor(tensor);
}

}  // namespace lockstep::detail
