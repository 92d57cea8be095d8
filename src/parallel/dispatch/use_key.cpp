#include "parallel/dispatch/use_key.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>

#include <lockstep/base/error.h>
#include <torch/library.h>

#include "parallel/deferred/deferred_operators.h"
#include "parallel/dispatch/mark_table.h"
#include "parallel/dispatch/operator_info.h"
#include "parallel/dispatch/operator_recorder.h"
#include "parallel/dispatch/operator_watcher.h"

namespace lockstep::detail {
namespace {

using c10::DispatchKeySet;
using torch::jit::Stack;

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

// What it calls comes here, with the key still there.
void run_inner_operators(const c10::OperatorHandle& op, DispatchKeySet keys, Stack& stack) {
  op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, use_key()), &stack);
}

// The exclusion holds for this thread and call: what the operator or a handler calls does not come back.
// What a composite view calls does: one of them may be a copy. So does a backward, and what makes a tensor of
// others in several steps where one of them may be deferred.
void fallback(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const auto& info = operator_info(op);
  if (info.kind == OperatorKind::kBackward) set_operator_recorder(nullptr);
  if (info.kind == OperatorKind::kCompositeView || info.kind == OperatorKind::kBackward)
    return run_inner_operators(op, keys, *stack);
  if (info.kind == OperatorKind::kView) return run_view(op, *stack);
  if (may_defer() && defer_operator(op, info, *stack)) return;
  OperatorCall call(op, *stack);
  auto uses = uses_of(call);
  if (info.is_composite && uses.empty() && may_defer()) return run_inner_operators(op, keys, *stack);
  const c10::impl::ExcludeDispatchKeyGuard guard(use_key());
  if (may_defer()) materialize_arguments(call.arguments());
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

}  // namespace lockstep::detail
