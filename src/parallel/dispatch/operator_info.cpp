// What the schemas of operators say: OperatorInfo, and OperatorCall's access to arguments by their kind.
#include "parallel/dispatch/operator_dispatch.h"

#include <algorithm>
#include <unordered_map>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <lockstep/base/error.h>
#include <lockstep/parallel/dispatch/tensor_mark.h>

namespace lockstep::detail {
namespace {

bool is_view(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  const auto only_aliases = [](const c10::Argument& result) {
    return result.alias_info() && !result.alias_info()->isWrite();
  };
  return !returns.empty() && !op.hasTag(at::Tag::inplace_view) && std::ranges::all_of(returns, only_aliases);
}

bool is_in_place(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  if (schema.returns().size() != 1 || op.hasTag(at::Tag::inplace_view)) return false;
  const auto* alias = schema.returns()[0].alias_info();
  const auto is_output = [](const c10::Argument& argument) { return argument.is_out(); };
  return alias && alias->isWrite() && std::ranges::none_of(schema.arguments(), is_output);
}

bool is_elementwise(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name().name;
  const bool is_known = op.hasTag(at::Tag::pointwise) || name == "aten::clone" || name == "aten::_to_copy";
  const auto& returns = op.schema().returns();
  return is_known && returns.size() == 1 && !returns[0].alias_info() &&
         returns[0].type()->kind() == c10::TypeKind::TensorType;
}

// An operator with a gradient of its own may work without other operators (copy_), unless it makes a tensor
// from no others.
bool is_composite(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) return true;
  const auto takes_tensor = [](const c10::Argument& argument) {
    return argument.type()->str().find("Tensor") != std::string::npos;
  };
  return !op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         std::ranges::none_of(op.schema().arguments(), takes_tensor);
}

OperatorInfo read_schema(const c10::OperatorHandle& op) {
  OperatorInfo info;
  if (op.operator_name().name == "aten::_backward") info.kind = OperatorKind::kBackward;
  if (is_view(op)) {
    const bool is_composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    info.kind = is_composite ? OperatorKind::kCompositeView : OperatorKind::kView;
  }
  info.is_composite = is_composite(op);
  info.is_random = op.hasTag(at::Tag::nondeterministic_seeded);
  info.is_in_place = is_in_place(op);
  info.is_elementwise = is_elementwise(op);
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < std::min<std::size_t>(arguments.size(), 64); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias && alias->isWrite()) info.written |= std::uint64_t{1} << i;
  }
  return info;
}

}  // namespace

const OperatorInfo& operator_info(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<c10::OperatorHandle, OperatorInfo> known;
  const auto found = known.find(op);
  return found != known.end() ? found->second : known.emplace(op, read_schema(op)).first->second;
}

}  // namespace lockstep::detail

namespace lockstep {
namespace {

std::span<c10::IValue> last(std::vector<c10::IValue>& stack, std::size_t count) {
  return std::span(stack).last(count);
}

}  // namespace

const std::string& OperatorCall::name() const { return op_->operator_name().name; }

std::span<c10::IValue> OperatorCall::arguments() {
  return is_done_ ? std::span<c10::IValue>() : last(*stack_, op_->schema().arguments().size());
}

void OperatorCall::run() {
  is_done_ = true;
  op_->callBoxed(*stack_);
}

void OperatorCall::set_results(std::vector<c10::IValue> results) {
  const auto expected = op_->schema().returns().size();
  if (results.size() != expected) {
    throw ConfigError("parallel", {.what = "a handler gave results that are not those of " + name(),
                                   .expected = std::to_string(expected),
                                   .got = std::to_string(results.size())});
  }
  stack_->resize(stack_->size() - (is_done_ ? expected : op_->schema().arguments().size()));
  stack_->insert(stack_->end(), std::make_move_iterator(results.begin()),
                 std::make_move_iterator(results.end()));
  is_done_ = true;
}

std::span<c10::IValue> OperatorCall::results() {
  return is_done_ ? last(*stack_, op_->schema().returns().size()) : std::span<c10::IValue>();
}

}  // namespace lockstep
