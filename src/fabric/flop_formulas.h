// How many operations an operator is, by the shapes of its arguments.
#pragma once

#include <optional>
#include <string_view>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace lockstep::detail {

struct OperatorFlops {
  double macs = 0;   ///< multiply-accumulate operations
  double other = 0;  ///< floating-point operations beside them
};

/// Of `aten::linear` and such, with what it calls in turn. Nothing where no formula is known. Formulas are
/// those of DeepSpeed's flops profiler; of backward passes, those of torch.utils.flop_counter.
std::optional<OperatorFlops> flops_of(std::string_view name, c10::ArrayRef<const c10::IValue> arguments);

}  // namespace lockstep::detail
