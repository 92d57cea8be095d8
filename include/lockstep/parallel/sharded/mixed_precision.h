// MixedPrecision: the element types that a sharded model computes and communicates in.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <c10/core/ScalarType.h>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// Fields of torch.distributed.fsdp.MixedPrecision. Shards, the optimizer's state and, unless they are to be
/// kept in low precision, the gradients on shards have the model's own type; what is empty is left as it is.
struct MixedPrecision {
  std::optional<at::ScalarType> param_dtype = {};   ///< of gathered parameters: what operators compute in
  std::optional<at::ScalarType> reduce_dtype = {};  ///< that gradients travel in; by default param_dtype
  std::optional<at::ScalarType> buffer_dtype = {};  ///< of floating-point buffers
  bool keep_low_precision_grads = false;  ///< gradients on shards stay in param_dtype, which is of 16 bits:
                                          ///< half the memory, and nothing is widened before the optimizer
  bool cast_forward_inputs = true;        ///< gives operators that use a parameter all their floating-point
                                          ///< arguments in its type
};

/// As an option: one type for all, or each by itself. As text (flags, YAML): `bfloat16`, or a map,
/// `{param_dtype: bfloat16, reduce_dtype: float32}`; `none`.
class LOCKSTEP_API MixedPrecisionChoice {
 public:
  MixedPrecisionChoice() = default;
  MixedPrecisionChoice(at::ScalarType all)
      : value_{.param_dtype = all, .reduce_dtype = all, .buffer_dtype = all} {}
  MixedPrecisionChoice(MixedPrecision value) : value_(value) {}

  const MixedPrecision& value() const { return value_; }
  /// Whether no type differs from the model's own.
  bool has_no_type() const { return !value_.param_dtype && !value_.reduce_dtype && !value_.buffer_dtype; }
  /// Whether it says nothing.
  bool is_none() const {
    return has_no_type() && value_.cast_forward_inputs && !value_.keep_low_precision_grads;
  }

 private:
  MixedPrecision value_;
};

template <>
struct LOCKSTEP_API OptionType<MixedPrecisionChoice> {
  static constexpr bool kIsMap = true;
  static Expected<MixedPrecisionChoice> parse(std::string_view text);
  static std::string print(const MixedPrecisionChoice& value);
  static std::string accepted();
  static std::string type() { return "name or map"; }
};

}  // namespace lockstep
