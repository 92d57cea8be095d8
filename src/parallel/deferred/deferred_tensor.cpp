#include "parallel/deferred/deferred_tensor.h"

#include <malloc.h>
#include <sys/mman.h>

#include <atomic>

#include <lockstep/torch.h>

#include "parallel/dispatch/operator_dispatch.h"
#include "parallel/released_storage.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kSmallestMapping = 1 << 20;

struct Mapping {
  void* address;
  std::size_t n_bytes;
};

void unmap(void* of) {
  const std::unique_ptr<Mapping> mapping(static_cast<Mapping*>(of));
  ::munmap(mapping->address, mapping->n_bytes);
}

c10::DataPtr map_memory(std::size_t n_bytes) {
  auto* const address = ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory for a tensor of ", n_bytes, " bytes");
  return {address, new Mapping{address, n_bytes}, &unmap, c10::kCPU};
}

}  // namespace

c10::Storage new_memory(std::size_t n_bytes) {
  auto* const allocator = c10::GetAllocator(c10::kCPU);
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<std::int64_t>(n_bytes),
      n_bytes < kSmallestMapping ? allocator->allocate(n_bytes) : map_memory(n_bytes), allocator,
      /*resizable=*/true);
}

// A copy of the generator, so that a second run draws the same numbers.
at::Tensor TapedOperator::run(const c10::Storage& memory) const {
  auto stack = arguments;
  for (auto& argument : stack) {
    if (argument.isGenerator()) argument = argument.toGenerator().clone();
  }
  for (const auto& tensor : tensors)
    stack[tensor.argument] = tensor.place.in(tensor.source ? tensor.source->replay(tensor.length) : memory);
  op.callBoxed(stack);
  return stack.back().toTensor();
}

TensorHistory::TensorHistory(std::size_t n_bytes, TensorPlace place, Origin origin)
    : n_bytes_(n_bytes), place_(std::move(place)), origin_(std::move(origin)) {}

c10::Storage TensorHistory::beginning() const {
  if (!origin_) return new_memory(n_bytes_);
  auto made = origin_();
  const bool is_in_place = made.scalar_type() == place_->dtype && made.storage_offset() == place_->offset &&
                           made.strides() == place_->strides && made.storage().nbytes() == n_bytes_;
  if (is_in_place && n_bytes_ < kSmallestMapping) return made.storage();
  auto memory = new_memory(n_bytes_);
  place_->in(memory).copy_(made);
  made.reset();
  ::malloc_trim(0);
  return memory;
}

std::size_t TensorHistory::first_that_matters(std::size_t length) const {
  while (length > 0 && !calls_[length - 1].overwrites) --length;
  return length > 0 ? length - 1 : 0;
}

c10::Storage TensorHistory::replay(std::size_t length) const {
  auto i = first_that_matters(length);
  const bool is_overwritten = i < length && calls_[i].overwrites;
  auto memory = is_overwritten ? new_memory(n_bytes_) : beginning();
  for (; i < length; ++i) calls_[i].run(memory);
  return memory;
}

namespace {

using SharedHistory = std::shared_ptr<TensorHistory>;

std::atomic<std::int64_t> histories_in_storages = 0;

void drop_history(void* history) {
  delete static_cast<SharedHistory*>(history);
  --histories_in_storages;
}

// The storage owns its history, which is freed with it.
c10::DataPtr in_place_of_memory(SharedHistory history) {
  auto* const owned = new SharedHistory(std::move(history));
  ++histories_in_storages;
  return {nullptr, owned, &drop_history, c10::kCPU};
}

c10::StorageImpl& storage_impl(const at::Tensor& tensor) {
  return *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

std::string refusal_of(const at::Tensor& meta) {
  return c10::str("a ", meta.scalar_type(), " tensor of shape ", meta.sizes(),
                  " was made within DeferredInit (init_module(), configure_model) and has no memory yet; "
                  "LibTorch's operators materialize it when they use it, raw pointers (data_ptr, accessor, "
                  "torch::save) do not: call lockstep::materialize(tensor) before");
}

// Runs operators on real memory, without autograd, autocast or deferral of the surrounding code.
struct PlainOperators {
  c10::impl::ExcludeDispatchKeyGuard no_key{use_key()};
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  c10::InferenceMode no_inference{false};
  at::NoGradGuard no_grad;
};

void take_memory(const at::Tensor& tensor, const c10::Storage& memory) {
  const auto n_bytes = static_cast<std::int64_t>(memory.nbytes());
  attach_memory(tensor, at::empty({0}, at::kByte).set_(memory, 0, {n_bytes}, {1}), 0);
}

}  // namespace

bool any_deferred() { return histories_in_storages.load(std::memory_order_relaxed) > 0; }

std::shared_ptr<TensorHistory> history_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const auto& memory = storage_impl(tensor)._mutable_data_ptr_no_checks();
  if (memory.get_deleter() != &drop_history) return nullptr;
  return *static_cast<SharedHistory*>(memory.get_context());
}

at::Tensor make_deferred(const at::Tensor& meta, std::shared_ptr<TensorHistory> history) {
  const PlainOperators plain;
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<std::int64_t>(meta.storage().nbytes()),
      in_place_of_memory(std::move(history)), c10::GetAllocator(c10::kCPU), /*resizable=*/true);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(refusal_of(meta));
  const auto keys = at::empty({0}, meta.options().device(at::kCPU)).key_set().add(use_key());
  auto tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), keys, meta.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides());
  return tensor;
}

bool replace_history(const at::Tensor& tensor, TensorHistory::Origin origin) {
  const auto n_bytes = tensor.storage().nbytes();
  if (!is_deferred(tensor) || n_bytes != tensor.nbytes()) return false;
  auto history = std::make_shared<TensorHistory>(n_bytes, TensorPlace(tensor), std::move(origin));
  storage_impl(tensor).set_data_ptr_noswap(in_place_of_memory(std::move(history)));
  return true;
}

void give_memory(const at::Tensor& tensor) {
  const PlainOperators plain;
  take_memory(tensor, new_memory(tensor.storage().nbytes()));
}

void forget_deferral(const at::Tensor& tensor) {
  const auto keys = tensor.key_set();
  if (!keys.has(use_key()) || !tensor.has_storage()) return;
  TensorUses uses;
  mark_table().find(&storage_impl(tensor), /*is_written=*/false, uses);
  if (uses.empty()) set_keys(tensor, keys.remove(use_key()));
}

}  // namespace lockstep::detail

namespace lockstep {

bool is_deferred(const at::Tensor& tensor) { return detail::history_of(tensor) != nullptr; }

void materialize(const at::Tensor& tensor) {
  const auto history = detail::history_of(tensor);
  if (!history) return;
  const detail::PlainOperators plain;
  detail::take_memory(tensor, history->replay(history->length()));
}

}  // namespace lockstep
