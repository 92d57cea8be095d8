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
  std::uint64_t written = 0;    ///< bit i: argument i, of the first 64, is written to
  bool is_composite = false;    ///< does nothing itself but call other operators, which can be followed
  bool is_random = false;       ///< draws random numbers
  bool is_in_place = false;     ///< changes one argument, which it returns, and nothing else
  bool is_elementwise = false;  ///< makes one new tensor, each element of those in the same place
};

/// Cached per thread and operator.
const OperatorInfo& operator_info(const c10::OperatorHandle& op);

}  // namespace lockstep::detail
