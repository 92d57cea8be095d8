#include "parallel/sharded/argument_casts.h"

#include <lockstep/torch.h>

#include "parallel/dispatch/operator_info.h"

namespace lockstep::detail {
namespace {

bool must_cast(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() && tensor.is_floating_point() && tensor.scalar_type() != dtype;
}

void cast_list(c10::IValue& argument, at::ScalarType dtype) {
  auto tensors = argument.toTensorVector();
  bool is_changed = false;
  for (auto& tensor : tensors) {
    if (!must_cast(tensor, dtype)) continue;
    tensor = tensor.to(dtype);
    is_changed = true;
  }
  if (is_changed) argument = c10::IValue(std::move(tensors));
}

// Statistics are written to, though schemas do not say so.
bool is_statistic(const c10::Argument& argument) { return argument.name().starts_with("running_"); }

}  // namespace

void cast_arguments(OperatorCall& call, at::ScalarType dtype) {
  const auto written = operator_info(call.op()).written;
  if (written != 0) return;
  const auto& schema = call.op().schema().arguments();
  const auto arguments = call.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto& argument = arguments[i];
    if (is_statistic(schema[i])) continue;
    if (argument.isTensor() && must_cast(argument.toTensor(), dtype)) {
      argument = argument.toTensor().to(dtype);
    } else if (argument.isTensorList()) {
      cast_list(argument, dtype);
    }
  }
}

}  // namespace lockstep::detail
