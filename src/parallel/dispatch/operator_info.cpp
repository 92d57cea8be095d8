#include "parallel/dispatch/operator_info.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <unordered_map>

namespace lockstep::detail {
namespace {

bool is_view(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  const auto only_aliases = [](const c10::Argument& result) {
    return result.alias_info() && !result.alias_info()->isWrite();
  };
  return !returns.empty() && !op.hasTag(at::Tag::inplace_view) && std::ranges::all_of(returns, only_aliases);
}

OperatorInfo read_schema(const c10::OperatorHandle& op) {
  OperatorInfo info;
  if (op.operator_name().name == "aten::_backward") info.kind = OperatorKind::kBackward;
  if (is_view(op)) {
    const bool is_composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    info.kind = is_composite ? OperatorKind::kCompositeView : OperatorKind::kView;
  }
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
