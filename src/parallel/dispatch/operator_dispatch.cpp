#include "parallel/dispatch/operator_dispatch.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/dispatch/tensor_mark.h>
#include <lockstep/torch.h>

#include "parallel/dispatch/backward_thread.h"

namespace lockstep::detail {

void MarkTable::add(const c10::StorageImpl* storage, const TensorMark* mark) {
  const std::unique_lock lock(mutex_);
  marks_[storage].push_back(mark);
}

bool MarkTable::remove(const c10::StorageImpl* storage, const TensorMark* mark) {
  const std::unique_lock lock(mutex_);
  const auto found = marks_.find(storage);
  auto& marks = found->second;
  marks.erase(std::remove(marks.begin(), marks.end(), mark), marks.end());
  const auto is_same = [mark](const TensorMark* other) { return other->tensor().is_same(mark->tensor()); };
  const bool was_last = std::none_of(marks.begin(), marks.end(), is_same);
  if (marks.empty()) marks_.erase(found);
  return was_last;
}

void MarkTable::find(const c10::StorageImpl* storage, bool is_written, TensorUses& uses) const {
  const std::shared_lock lock(mutex_);
  const auto found = marks_.find(storage);
  if (found == marks_.end()) return;
  for (const auto* mark : found->second) uses.push_back({mark, is_written});
}

MarkTable& mark_table() {
  static auto* table = new MarkTable;
  return *table;
}

namespace {

std::vector<OperatorWatcher*>& watchers_of_thread() {
  thread_local std::vector<OperatorWatcher*> watchers;
  return watchers;
}

template <class Tell>
void tell_present(const Tell& tell) {
  const auto depth = backward_thread()->depth;
  for (auto* watcher : watchers_of_thread()) {
    if (watcher->depth() == depth) tell(*watcher);
  }
}

}  // namespace

const std::shared_ptr<BackwardThread>& backward_thread() {
  thread_local const auto thread = std::make_shared<BackwardThread>();
  return thread;
}

OperatorWatcher::OperatorWatcher() : depth_(backward_thread()->depth) {
  watchers_of_thread().push_back(this);
  follow_operators();
}

OperatorWatcher::~OperatorWatcher() {
  watchers_of_thread().pop_back();
  follow_operators();
}

bool has_operator_watchers() { return !watchers_of_thread().empty(); }

void tell_before(OperatorCall& call) {
  tell_present([&](OperatorWatcher& watcher) { watcher.before(call); });
}

void tell_after(OperatorCall& call) {
  tell_present([&](OperatorWatcher& watcher) { watcher.after(call); });
}

namespace {

std::shared_ptr<OperatorRecorder>& recorder_of_thread() {
  thread_local std::shared_ptr<OperatorRecorder> recorder;
  return recorder;
}

}  // namespace

const std::shared_ptr<OperatorRecorder>& operator_recorder() { return recorder_of_thread(); }

void set_operator_recorder(std::shared_ptr<OperatorRecorder> recorder) {
  auto& current = recorder_of_thread();
  if (!current && !recorder) return;
  const auto before = std::exchange(current, std::move(recorder));
  follow_operators();
}

// With the key in the thread's included set the dispatcher calls our fallback for operators on any tensors.
void follow_operators() {
  c10::impl::tls_set_dispatch_key_included(use_key(), recorder_of_thread() || has_operator_watchers());
}

// Keys can only be changed by giving a tensor the contents of another, here its own with other keys.
void set_keys(const at::Tensor& tensor, c10::DispatchKeySet keys) {
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard guard(use_key());
  auto twin = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()), keys, tensor.dtype());
  twin.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  twin.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  tensor.set_data(twin);
}

namespace {

using c10::DispatchKeySet;
using torch::jit::Stack;

// Set while the library is loaded, before any thread could read it.
constinit DeferralHooks deferral{
    .may_defer = [] { return false; }, .defer_operator = nullptr, .materialize_arguments = nullptr};

void find_uses(const at::Tensor& tensor, bool is_written, TensorUses& uses) {
  if (!tensor.defined() || !tensor.key_set().has(use_key()) || !tensor.has_storage()) return;
  mark_table().find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(), is_written, uses);
}

// In a list of tensors some may be absent.
void find_uses(const c10::IValue& argument, bool is_written, TensorUses& uses) {
  if (argument.isTensor()) {
    find_uses(argument.toTensor(), is_written, uses);
  } else if (argument.isList()) {
    for (const auto& element : argument.toListRef()) {
      if (element.isTensor()) find_uses(element.toTensor(), is_written, uses);
    }
  }
}

TensorUses uses_of(OperatorCall& call) {
  const auto written = operator_info(call.op()).written;
  const auto arguments = call.arguments();
  TensorUses uses;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    find_uses(arguments[i], i < 64 && (written >> i & 1) != 0, uses);
  }
  return uses;
}

// Reorders `uses` so that those of one handler stand together, in the order in which handlers come first.
template <class Visit>
void for_each_handler(TensorUses& uses, Visit visit) {
  for (auto first = uses.begin(); first != uses.end();) {
    auto* handler = &first->mark->handler();
    const auto is_same = [handler](const TensorUse& use) { return &use.mark->handler() == handler; };
    const auto last = std::stable_partition(first, uses.end(), is_same);
    visit(*handler, std::span<const TensorUse>(first, last));
    first = last;
  }
}

template <class Run>
void run_recorded(OperatorCall& call, const Run& run) {
  const bool is_watched = has_operator_watchers();
  if (is_watched) tell_before(call);
  if (const auto recorder = operator_recorder()) {
    recorder->record(call, run);
  } else {
    run();
  }
  if (is_watched) tell_after(call);
}

void run_handled(OperatorCall& call, TensorUses& uses) {
  for_each_handler(uses, [&](UseHandler& handler, auto its_uses) { handler.before_use(call, its_uses); });
  for_each_handler(uses, [&](UseHandler& handler, auto its_uses) {
    if (!call.is_done()) handler.replace(call, its_uses);
  });
  if (!call.is_done()) call.run();
}

void run_use(OperatorCall& call, TensorUses& uses) {
  for_each_handler(uses, [](UseHandler& handler, auto its_uses) { handler.announce(its_uses); });
  run_recorded(call, [&] { run_handled(call, uses); });
}

void run_view(const c10::OperatorHandle& op, Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard guard(use_key());
  OperatorCall call(op, stack);
  run_recorded(call, [&] { call.run(); });
}

// Runs the operator so that operators that it calls come here, too, since the key is still set.
void run_inner_operators(const c10::OperatorHandle& op, DispatchKeySet keys, Stack& stack) {
  op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, use_key()), &stack);
}

// The key is excluded for this thread and call, so that operators that this one or a handler calls do not
// come here. Those of a composite view do, since one of them may be a copy; so do those of a backward, and
// those of an operator that makes a tensor in several steps where one may be deferred.
void fallback(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const auto& info = operator_info(op);
  if (info.kind == OperatorKind::kBackward) set_operator_recorder(nullptr);
  if (info.kind == OperatorKind::kCompositeView || info.kind == OperatorKind::kBackward)
    return run_inner_operators(op, keys, *stack);
  if (info.kind == OperatorKind::kView) return run_view(op, *stack);
  if (deferral.may_defer() && deferral.defer_operator(op, info, *stack)) return;
  OperatorCall call(op, *stack);
  auto uses = uses_of(call);
  if (info.is_composite && uses.empty() && deferral.may_defer()) return run_inner_operators(op, keys, *stack);
  const c10::impl::ExcludeDispatchKeyGuard guard(use_key());
  if (deferral.may_defer()) deferral.materialize_arguments(call.arguments());
  run_use(call, uses);
}

// The only keys above autograd and autocast for which LibTorch itself registers nothing.
constexpr std::array kCandidates = {c10::DispatchKey::TESTING_ONLY_GenericWrapper,
                                    c10::DispatchKey::DeferredInit};

c10::DispatchKey claim_key() {
  const auto is_free = [](c10::DispatchKey key) {
    return !c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(key);
  };
  const auto key = std::ranges::find_if(kCandidates, is_free);
  if (key == kCandidates.end()) {
    throw ConfigError("parallel", {.what = "tensors cannot be marked: another library took the dispatch keys",
                                   .expected = "TESTING_ONLY_GenericWrapper or DeferredInit to be free"});
  }
  static auto* library =
      new torch::Library(torch::Library::IMPL, "_", std::make_optional(*key), __FILE__, __LINE__);
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  return *key;
}

}  // namespace

c10::DispatchKey use_key() {
  static const auto key = claim_key();
  return key;
}

void set_deferral_hooks(const DeferralHooks& hooks) { deferral = hooks; }

}  // namespace lockstep::detail

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
