#include <lockstep/parallel/dispatch/tensor_mark.h>

#include <lockstep/base/error.h>

#include "parallel/dispatch/mark_table.h"
#include "parallel/dispatch/tensor_keys.h"
#include "parallel/dispatch/use_key.h"

namespace lockstep {
namespace {

const at::Tensor& check(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.has_storage()) return tensor;
  throw ConfigError("parallel", {.what = "a tensor cannot be marked",
                                 .expected = "a tensor with a storage",
                                 .got = tensor.defined() ? "one without" : "an undefined tensor"});
}

c10::weak_intrusive_ptr<c10::StorageImpl> storage_of(const at::Tensor& tensor) {
  return tensor.storage().getWeakStorageImpl();
}

}  // namespace

void UseHandler::announce(std::span<const TensorUse>) {}

void UseHandler::replace(OperatorCall&, std::span<const TensorUse>) {}

TensorMark::TensorMark(const at::Tensor& tensor, UseHandler& handler, std::size_t tag)
    : tensor_(check(tensor)), handler_(&handler), tag_(tag), storage_(storage_of(tensor)) {
  const auto keys = tensor_.key_set();
  if (!keys.has(detail::use_key())) detail::set_keys(tensor_, keys.add(detail::use_key()));
  detail::mark_table().add(storage_._unsafe_get_target(), this);
}

TensorMark::~TensorMark() {
  const bool was_last = detail::mark_table().remove(storage_._unsafe_get_target(), this);
  if (was_last && is_intact()) detail::set_keys(tensor_, tensor_.key_set().remove(detail::use_key()));
}

bool TensorMark::is_intact() const {
  return tensor_.key_set().has(detail::use_key()) &&
         tensor_.storage().unsafeGetStorageImpl() == storage_._unsafe_get_target();
}

}  // namespace lockstep
