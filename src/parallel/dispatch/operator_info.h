// What an operator's schema says about how it uses its arguments.
#pragma once

#include <cstdint>

namespace c10 {
class OperatorHandle;
}

namespace lockstep::detail {

enum class OperatorKind {
  kUse,            ///< reads or writes elements
  kView,           ///< only makes tensors that share the memory of an argument
  kCompositeView,  ///< the same, but calls other operators, which may copy
  kBackward        ///< runs the autograd engine
};

struct OperatorInfo {
  OperatorKind kind = OperatorKind::kUse;
  std::uint64_t written = 0;  ///< bit i: argument i, of the first 64, is written to
};

/// Looked up once per thread and operator, then remembered.
const OperatorInfo& operator_info(const c10::OperatorHandle& op);

}  // namespace lockstep::detail
