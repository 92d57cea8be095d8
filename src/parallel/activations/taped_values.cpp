// TapedValues: the tensors that recorded operators use and return, by number.
#include "parallel/activations/recorded_segment.h"

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "parallel/dispatch/operator_dispatch.h"

namespace lockstep::detail {
namespace {

std::int64_t version_of(const at::Tensor& tensor) { return tensor.is_inference() ? 0 : tensor._version(); }

[[noreturn]] void refuse_changed(const at::Tensor& tensor) {
  throw Error("parallel",
              {.what = "what a checkpointed block was given has changed before backward, which computes the "
                       "block again from it",
               .expected = "a tensor that stays as it is until then",
               .got = c10::str("a write to a tensor of ", tensor.scalar_type(), ' ', tensor.sizes()),
               .hint = "write to a copy of it"});
}

// The result of a custom autograd function requires gradients although those of the operators inside do not.
at::Tensor with_requires_grad(const at::Tensor& tensor, bool requires_grad) {
  if (tensor.requires_grad() == requires_grad) return tensor;
  return requires_grad ? tensor.set_requires_grad(true) : tensor.detach();
}

}  // namespace

std::size_t TapedValues::add(const at::Tensor& tensor, std::size_t by) {
  numbers_.emplace(tensor.unsafeGetTensorImpl(), values_.size());
  values_.push_back({.identity = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
                     .memory = {},
                     .last_use = by});
  if (tensor.has_storage()) values_.back().memory = tensor.storage().getWeakStorageImpl();
  return values_.size() - 1;
}

void TapedValues::add_outer(const at::Tensor& tensor, std::size_t number) {
  auto& value = values_[number];
  value.outer = keep(tensor);
  value.version = version_of(tensor);
  value.requires_grad = tensor.requires_grad() && !tensor.is_leaf();
  if (tensor.has_storage()) outers_[tensor.storage().unsafeGetStorageImpl()].push_back(number);
}

TapedTensor TapedValues::use(const at::Tensor& tensor, std::size_t by) {
  if (!tensor.defined()) return {};
  const auto found = numbers_.find(tensor.unsafeGetTensorImpl());
  const bool is_new = found == numbers_.end();
  const auto number = is_new ? add(tensor, by) : found->second;
  if (is_new) add_outer(tensor, number);
  values_[number].last_use = by;
  return {.value = number, .requires_grad = tensor.requires_grad()};
}

std::optional<std::size_t> TapedValues::define(const at::Tensor& tensor, std::size_t by) {
  if (!tensor.defined()) return std::nullopt;
  const auto found = numbers_.find(tensor.unsafeGetTensorImpl());
  if (found == numbers_.end()) {
    if (tensor.has_storage() && outers_in_memory_of(tensor).empty())
      made_.insert(tensor.storage().unsafeGetStorageImpl());
    return add(tensor, by);
  }
  return values_[found->second].outer.is_defined() ? std::nullopt : std::optional(found->second);
}

std::span<const std::size_t> TapedValues::outers_in_memory_of(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage()) return {};
  const auto found = outers_.find(tensor.storage().unsafeGetStorageImpl());
  return found == outers_.end() ? std::span<const std::size_t>() : found->second;
}

bool TapedValues::keeps(const at::Tensor& tensor) const {
  const auto outers = outers_in_memory_of(tensor);
  if (outers.empty() || made_.contains(tensor.storage().unsafeGetStorageImpl())) return false;
  return std::ranges::none_of(outers, [this](std::size_t number) { return values_[number].is_copied; });
}

// Two tensors on the same memory, neither of which was made from the other by a recorded operator, would have
// separate memory in the second run.
bool TapedValues::can_write(const at::Tensor& tensor) const {
  if (!tensor.has_storage()) return false;
  const bool is_known = numbers_.contains(tensor.unsafeGetTensorImpl());
  const auto outers = outers_in_memory_of(tensor).size() + (is_known ? 0 : 1);
  if (outers == 0) return true;
  return outers == 1 && !made_.contains(tensor.storage().unsafeGetStorageImpl()) &&
         !tensor.key_set().has(use_key());
}

void TapedValues::keep_before_write(const at::Tensor& tensor) {
  for (const auto number : outers_in_memory_of(tensor)) keep_copy(values_[number]);
}

void TapedValues::check_unchanged(const Value& value) {
  if (const auto outer = value.outer.get(); version_of(outer) != value.version) refuse_changed(outer);
}

void TapedValues::keep_copy(Value& value) {
  if (value.is_copied) return;
  value.is_copied = true;
  if (value.outer.is_copy()) return;
  check_unchanged(value);
  const at::NoGradGuard no_grad;
  value.outer = value.outer.get().detach().clone();
}

bool TapedValues::can_give_itself(const at::Tensor& tensor) const {
  const auto found = numbers_.find(tensor.unsafeGetTensorImpl());
  if (found == numbers_.end()) return true;
  const auto& value = values_[found->second];
  return value.outer.is_defined() && !value.is_copied;
}

void TapedValues::expect_changes(const TapedTensor& used, const at::Tensor& tensor) {
  if (!used.value) return;
  values_[*used.value].is_fixed = false;
  values_[*used.value].outer = tensor;
}

// A copy that is written to in the second run, too, must not be a leaf where it was none.
at::Tensor TapedValues::get_outer(const Value& value) const {
  auto outer = value.outer.get();
  if (value.is_copied) {
    const at::AutoGradMode with_gradients(value.requires_grad);
    return outer.detach().set_requires_grad(value.requires_grad).clone();
  }
  if (value.is_fixed && !value.outer.is_copy()) check_unchanged(value);
  return outer;
}

at::Tensor TapedValues::get(const TapedTensor& used) {
  if (!used.value) return {};
  again_.resize(values_.size());
  auto& tensor = again_[*used.value];
  if (!tensor.defined()) tensor = get_outer(values_[*used.value]);
  return with_requires_grad(tensor, used.requires_grad);
}

void TapedValues::set(std::optional<std::size_t> value, const at::Tensor& tensor) {
  if (!value) return;
  again_.resize(values_.size());
  again_[*value] = tensor;
}

void TapedValues::end_use(std::optional<std::size_t> value, std::size_t by) {
  if (value && values_[*value].last_use == by) again_[*value].reset();
}

}  // namespace lockstep::detail
