// Operators on deferred tensors: which are deferred, and which need the memory at once.
#include "parallel/deferred/deferred_tensor.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_set>

#include <ATen/autocast_mode.h>

#include <lockstep/parallel/deferred_init.h>
#include <lockstep/torch.h>

#include "parallel/dispatch/operator_dispatch.h"
#include "parallel/module_states.h"

namespace lockstep {

// With the key included, operators that create tensors come to our fallback as well.
DeferredInit::DeferredInit()
    : was_deferring_(detail::is_deferring()),
      was_included_(c10::impl::tls_is_dispatch_key_included(detail::use_key())) {
  c10::impl::tls_set_dispatch_key_included(detail::use_key(), true);
  detail::is_deferring() = true;
}

DeferredInit::~DeferredInit() {
  detail::is_deferring() = was_deferring_;
  c10::impl::tls_set_dispatch_key_included(detail::use_key(), was_included_);
}

void materialize_module(const torch::nn::Module& module) {
  detail::materialize_states(detail::ModuleStates(module));
}

}  // namespace lockstep

namespace lockstep::detail {
namespace {

using torch::jit::Stack;

// Smaller tensors are not deferred: they need little memory, and code that writes to them directly works.
constexpr std::int64_t kSmallestDeferred = 1024;

std::span<c10::IValue> arguments_of(const c10::OperatorHandle& op, Stack& stack) {
  return std::span(stack).last(op.schema().arguments().size());
}

void return_instead(Stack& stack, std::span<c10::IValue> arguments, const at::Tensor& result) {
  stack.resize(stack.size() - arguments.size());
  stack.emplace_back(result);
}

std::optional<at::Tensor> result_on_meta(const c10::OperatorHandle& op, Stack arguments) {
  try {
    op.callBoxed(arguments);
    return arguments.back().toTensor();
  } catch (const std::exception&) {  // errors of the call are reported when it runs
    return std::nullopt;
  }
}

bool makes_memory(const c10::OperatorHandle& op) {
  auto& dispatcher = c10::Dispatcher::singleton();
  static const auto empty = dispatcher.findSchemaOrThrow("aten::empty", "memory_format");
  static const auto empty_strided = dispatcher.findSchemaOrThrow("aten::empty_strided", "");
  return op == empty || op == empty_strided;
}

// Whether torch::tensor({...}) is creating a tensor, which it fills directly; this distinguishes it from
// torch::empty().
bool fills_by_hand() {
  const auto excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
  return excluded.has(c10::DispatchKey::AutogradFunctionality) &&
         !excluded.has(c10::DispatchKey::ADInplaceOrView);
}

bool asks_for_cpu(const c10::IValue& device) { return device.isNone() || device.toDevice().is_cpu(); }

// Replaces the CPU by the meta device, on which tensors have shapes only; false for other devices.
bool move_to_meta(const c10::OperatorHandle& op, Stack& arguments) {
  const auto device = op.schema().argumentIndexWithName("device");
  if (!device) return true;
  const auto pinned = op.schema().argumentIndexWithName("pin_memory");
  if (pinned && !arguments[*pinned].isNone() && arguments[*pinned].toBool()) return false;
  auto& asked = arguments[*device];
  if (!asks_for_cpu(asked)) return false;
  asked = c10::Device(c10::kMeta);
  return true;
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.numel() >= kSmallestDeferred;
}

bool defer_memory(const c10::OperatorHandle& op, Stack& stack) {
  if (c10::InferenceMode::is_enabled() || fills_by_hand()) return false;
  const auto arguments = arguments_of(op, stack);
  Stack of_meta(arguments.begin(), arguments.end());
  if (!move_to_meta(op, of_meta)) return false;
  const auto meta = result_on_meta(op, std::move(of_meta));
  if (!meta || !is_dense(*meta)) return false;
  return_instead(stack, arguments,
                 make_deferred(*meta, std::make_shared<TensorHistory>(meta->storage().nbytes())));
  return true;
}

// Whether `tensor` is a number that was passed to an operator.
bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

bool holds_tensors(const c10::IValue& argument) {
  if (!argument.isList()) return false;
  const auto elements = argument.toListRef();
  return std::ranges::any_of(elements, [](const c10::IValue& element) { return element.isTensor(); });
}

// The call without its tensors; `own` is the history of the storage that it writes to. None if it has to do
// with tensors that are not deferred: they may be changed before it runs.
std::optional<TapedOperator> taped(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                   const TensorHistory* own) {
  TapedOperator call{.op = op, .arguments = {arguments.begin(), arguments.end()}, .tensors = {}};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (holds_tensors(arguments[i])) return std::nullopt;
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const auto& tensor = arguments[i].toTensor();
    if (is_number(tensor)) continue;
    auto history = history_of(tensor);
    if (!history) return std::nullopt;
    const auto length = history->length();
    call.tensors.push_back({.argument = i, .place = TensorPlace(tensor), .source = {}, .length = length});
    if (history.get() != own) call.tensors.back().source = std::move(history);
    call.arguments[i] = {};
  }
  return call;
}

// The arguments with tensors of shapes only.
Stack shapes_of(std::span<const c10::IValue> arguments, const TapedOperator& call) {
  Stack shapes(arguments.begin(), arguments.end());
  for (const auto& [argument, place, source, length] : call.tensors) {
    const auto& tensor = arguments[argument].toTensor();
    shapes[argument] =
        at::empty_strided(tensor.sizes(), tensor.strides(), at::device(at::kMeta).dtype(tensor.dtype()));
  }
  return shapes;
}

bool needs_graph(const at::Tensor& tensor) { return at::GradMode::is_enabled() && tensor.requires_grad(); }

bool any_needs_graph(std::span<const c10::IValue> arguments) {
  return std::ranges::any_of(arguments, [](const c10::IValue& argument) {
    return argument.isTensor() && argument.toTensor().defined() && needs_graph(argument.toTensor());
  });
}

// Advances the generator as the call would, for later draws, and stores the generator as it was before.
bool draw(TapedOperator& call, std::span<const c10::IValue> arguments, const at::Tensor& self) {
  const auto index = call.op.schema().argumentIndexWithName("generator");
  if (!index || call.tensors.size() != 1) return false;
  auto generator = arguments[*index].isNone() ? at::globalContext().defaultGenerator(at::kCPU)
                                              : arguments[*index].toGenerator();
  {
    const std::lock_guard lock(generator.mutex());
    call.arguments[*index] = generator.clone();
  }
  Stack scratch(arguments.begin(), arguments.end());
  scratch[call.tensors[0].argument] = call.tensors[0].place.in(new_memory(self.storage().nbytes()));
  call.op.callBoxed(scratch);
  return true;
}

// Whether the call overwrites all of `self`, as an initialisation after that of the layer itself does.
bool overwrites(const TapedOperator& call, const at::Tensor& self) {
  static const std::unordered_set<std::string> names = {
      "aten::copy_",      "aten::fill_",   "aten::zero_",   "aten::bernoulli_", "aten::exponential_",
      "aten::geometric_", "aten::normal_", "aten::random_", "aten::uniform_"};
  const auto reads_itself = [](const TapedArgument& tensor) { return tensor.argument > 0 && !tensor.source; };
  return names.contains(call.op.operator_name().name) && std::ranges::none_of(call.tensors, reads_itself) &&
         self.nbytes() == self.storage().nbytes() && self.is_non_overlapping_and_dense();
}

bool defer_write(const c10::OperatorHandle& op, const OperatorInfo& info, Stack& stack) {
  const auto arguments = arguments_of(op, stack);
  const auto self = arguments.front();
  if (info.written != 1 || !self.isTensor() || needs_graph(self.toTensor())) return false;
  const auto history = history_of(self.toTensor());
  auto call = history ? taped(op, arguments, history.get()) : std::nullopt;
  if (!call) return false;
  const bool is_possible = info.is_random ? draw(*call, arguments, self.toTensor())
                                          : result_on_meta(op, shapes_of(arguments, *call)).has_value();
  if (!is_possible) return false;
  call->overwrites = overwrites(*call, self.toTensor());
  history->append(*std::move(call));
  return_instead(stack, arguments, self.toTensor());
  return true;
}

bool defer_result(const c10::OperatorHandle& op, const OperatorInfo& info, Stack& stack) {
  const auto arguments = arguments_of(op, stack);
  if (info.is_random || any_needs_graph(arguments) || c10::InferenceMode::is_enabled() ||
      at::autocast::is_autocast_enabled(at::kCPU))
    return false;
  auto call = taped(op, arguments, nullptr);
  if (!call || call->tensors.empty()) return false;
  auto shapes = shapes_of(arguments, *call);
  if (!move_to_meta(op, shapes)) return false;
  const auto meta = result_on_meta(op, std::move(shapes));
  if (!meta || !is_dense(*meta)) return false;
  auto origin = [call = *std::move(call)] { return call.run({}); };
  return_instead(stack, arguments,
                 make_deferred(*meta, std::make_shared<TensorHistory>(
                                          meta->storage().nbytes(), TensorPlace(*meta), std::move(origin))));
  return true;
}

void materialize_in(const c10::IValue& argument) {
  if (argument.isTensor()) {
    materialize(argument.toTensor());
  } else if (argument.isList()) {
    for (const c10::IValue& element : argument.toListRef()) {
      if (element.isTensor()) materialize(element.toTensor());
    }
  }
}

bool may_defer() { return is_deferring() || any_deferred(); }

bool defer_operator(const c10::OperatorHandle& op, const OperatorInfo& info, Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard guard(use_key());
  if (is_deferring() && makes_memory(op)) return defer_memory(op, stack);
  if (!any_deferred()) return false;
  if (info.is_in_place) return defer_write(op, info, stack);
  return is_deferring() && info.is_elementwise && defer_result(op, info, stack);
}

void materialize_arguments(std::span<const c10::IValue> arguments) {
  for (const auto& argument : arguments) materialize_in(argument);
}

[[maybe_unused]] const bool is_hooked = [] {
  set_deferral_hooks({.may_defer = &may_defer,
                      .defer_operator = &defer_operator,
                      .materialize_arguments = &materialize_arguments});
  return true;
}();

}  // namespace

bool& is_deferring() {
  thread_local bool defers = false;
  return defers;
}

}  // namespace lockstep::detail
