#include "parallel/released_storage.h"

#include <c10/core/StorageImpl.h>

#include <lockstep/torch.h>

#include "device/compat.h"

namespace lockstep::detail {
namespace {

c10::StorageImpl& storage_of(const at::Tensor& tensor) {
  return *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

void drop_owner(void* owner) { delete static_cast<c10::Storage*>(owner); }

}  // namespace

void release_memory(const at::Tensor& tensor, const std::string& message) {
  auto& storage = storage_of(tensor);
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, tensor.device()));
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(message);
}

at::Tensor without_memory(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  const auto shape = at::empty(sizes, at::device(at::kMeta).dtype(dtype));
  auto tensor = at::empty({0}, at::TensorOptions(device).dtype(dtype));
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<std::int64_t>(shape.nbytes()),
      c10::DataPtr(nullptr, device), c10::GetAllocator(device.type()), /*resizable=*/true);
  return tensor.set_(c10::Storage(std::move(storage)), 0, sizes, shape.strides());
}

void attach_memory(const at::Tensor& tensor, const at::Tensor& owner, std::int64_t offset) {
  auto& storage = storage_of(tensor);
  auto* const memory =
      static_cast<char*>(owner.data_ptr()) + offset * static_cast<std::int64_t>(owner.element_size());
  allow_access(storage);
  storage.set_data_ptr_noswap(
      c10::DataPtr(memory, new c10::Storage(owner.storage()), &drop_owner, tensor.device()));
}

bool owns_its_storage(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_contiguous() &&
         tensor.storage().nbytes() == tensor.nbytes();
}

}  // namespace lockstep::detail
