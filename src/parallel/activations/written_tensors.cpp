#include "parallel/activations/written_tensors.h"

#include <algorithm>
#include <ranges>

#include <lockstep/torch.h>

#include "parallel/activations/replay_info.h"
#include "parallel/dispatch/operator_info.h"
#include "parallel/dispatch/use_key.h"

namespace lockstep::detail {
namespace {

const c10::StorageImpl* written_storage(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

template <class Visit>
void for_each_stored(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (written_storage(value.toTensor())) visit(value.toTensor());
  } else if (value.isList()) {
    for (const auto& element : value.toListRef()) for_each_stored(element, visit);
  }
}

bool is_same_place(const at::Tensor& a, const at::Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type();
}

// The memory of parameters of sharded models comes and goes.
bool is_kept_by_others(const at::Tensor& tensor) {
  if (!tensor.key_set().has(use_key())) return false;
  return tensor.requires_grad() || tensor.storage().nbytes() == 0;
}

}  // namespace

void WrittenTensors::Watch::before(OperatorCall& call) {
  const auto written = operator_info(call.op()).written | replay_info(call.op()).statistics;
  const auto arguments = call.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool is_written = i < 64 && (written >> i & 1) != 0;
    for_each_stored(arguments[i], [&](const at::Tensor& tensor) {
      if (made_.contains(written_storage(tensor))) return;
      outer_.insert(written_storage(tensor));
      if (is_written) tensors_.keep_before_write(tensor);
    });
  }
}

void WrittenTensors::Watch::after(OperatorCall& call) {
  for (const auto& result : call.results()) {
    for_each_stored(result, [&](const at::Tensor& tensor) {
      if (!outer_.contains(written_storage(tensor))) made_.insert(written_storage(tensor));
    });
  }
}

void WrittenTensors::keep_before_write(const at::Tensor& tensor) {
  if (is_kept_by_others(tensor)) return;
  auto& known = by_storage_[written_storage(tensor)];
  const auto is_known = [&](std::size_t i) { return is_same_place(writes_[i].tensor, tensor); };
  if (std::ranges::any_of(known, is_known)) return;
  known.push_back(writes_.size());
  writes_.push_back({.tensor = tensor.variable_data(),
                     .before = tensor.detach().clone(),
                     .version = tensor.unsafeGetTensorImpl()->version_counter(),
                     .bytes = tensor.storage().nbytes()});
}

bool WrittenTensors::has_memory_of(const at::Tensor& tensor) const {
  return written_storage(tensor) && by_storage_.contains(written_storage(tensor));
}

// Backwards: places may overlap.
WrittenTensors::ScopedBefore::ScopedBefore(const WrittenTensors& tensors) : tensors_(tensors) {
  const at::NoGradGuard no_grad;
  for (const auto& write : tensors_.writes_) {
    const bool is_there = write.tensor.storage().nbytes() == write.bytes;
    now_.push_back(is_there ? write.tensor.clone() : at::Tensor());
    versions_.push_back(write.version.enabled() ? write.version.current_version() : 0);
  }
  for (std::size_t i = now_.size(); i-- > 0;) {
    if (now_[i].defined()) tensors_.writes_[i].tensor.copy_(tensors_.writes_[i].before);
  }
}

WrittenTensors::ScopedBefore::~ScopedBefore() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < now_.size(); ++i) {
    if (!now_[i].defined()) continue;
    auto version = tensors_.writes_[i].version;
    tensors_.writes_[i].tensor.copy_(now_[i]);
    if (version.enabled()) version.set_version(versions_[i]);
  }
}

}  // namespace lockstep::detail
