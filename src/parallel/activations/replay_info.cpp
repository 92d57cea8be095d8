#include "parallel/activations/replay_info.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <unordered_map>

namespace lockstep::detail {
namespace {

bool gives_tensors(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.type()->str().find("Tensor") != std::string::npos;
  });
}

bool writes(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
    return argument.alias_info() && argument.alias_info()->isWrite();
  });
}

bool is_empty_factory(std::string_view name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
}

ReplayInfo read_replay_info(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const std::string_view name = op.operator_name().name;
  ReplayInfo info;
  info.can_replay = !name.starts_with("c10d::") && !name.starts_with("_c10d_functional::");
  info.has_effect = gives_tensors(schema) || writes(schema);
  info.is_defined = !is_empty_factory(name);
  info.draws = op.hasTag(at::Tag::nondeterministic_seeded) || !name.starts_with("aten::");
  for (std::size_t i = 0; i < std::min<std::size_t>(schema.arguments().size(), 64); ++i) {
    if (schema.arguments()[i].name().starts_with("running_")) info.statistics |= std::uint64_t{1} << i;
  }
  return info;
}

}  // namespace

const ReplayInfo& replay_info(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<c10::OperatorHandle, ReplayInfo> known;
  const auto found = known.find(op);
  return found != known.end() ? found->second : known.emplace(op, read_replay_info(op)).first->second;
}

}  // namespace lockstep::detail
