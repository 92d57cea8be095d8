// What kernels see of tensors: tensors of the CPU over the same bytes.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "sim/races.h"

namespace lockstep::sim {

bool is_on_sim(const at::Tensor& tensor);

/// The bytes of `tensor`; none where it has no elements or no memory.
std::optional<Span> span_of(const at::Tensor& tensor, bool is_written);
void add_span(std::vector<Span>& spans, const at::Tensor& tensor, bool is_written);

/// Views of the tensors of one call: those that are one tensor, or share a storage, do so among the views as
/// well.
class KernelViews {
 public:
  at::Tensor of(const at::Tensor& tensor);

 private:
  std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
};

/// What a kernel runs in: without autograd, and without what its caller's thread has switched on.
struct KernelScope {
  c10::impl::ExcludeDispatchKeyGuard no_autograd{c10::autograd_dispatch_keyset_with_ADInplaceOrView};
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  at::NoGradGuard no_grad;
};

}  // namespace lockstep::sim
