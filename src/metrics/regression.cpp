#include <lockstep/metrics/regression.h>

#include <string>

#include <ATen/ATen.h>

#include "metrics/inputs.h"

namespace lockstep::metrics {
namespace {

std::int64_t checked_num_outputs(const std::string& owner, std::int64_t num_outputs) {
  detail::require_option(num_outputs >= 1, owner + ": num_outputs", static_cast<double>(num_outputs),
                         "at least 1");
  return num_outputs;
}

at::Tensor zeros_for(const std::string& owner, std::int64_t num_outputs) {
  if (checked_num_outputs(owner, num_outputs) == 1) return at::zeros({}, at::kDouble);
  return at::zeros({num_outputs}, at::kDouble);
}

// preds - target in float64: [elements], or [N, num_outputs].
at::Tensor difference(const std::string& owner, const at::Tensor& preds, const at::Tensor& target,
                      std::int64_t num_outputs) {
  detail::check_same_shape(owner, preds, target);
  const bool is_table = preds.dim() == 2 && preds.size(1) == num_outputs;
  detail::require_input(num_outputs == 1 || is_table, owner + ": preds", preds,
                        c10::str("shape [N, ", num_outputs, "]"));
  const auto errors = preds.to(at::kDouble) - target.to(at::kDouble);
  return num_outputs == 1 ? errors.flatten() : errors;
}

at::Tensor rows_of(const at::Tensor& errors) { return at::scalar_tensor(errors.size(0), at::kLong); }

}  // namespace

MeanSquaredError::MeanSquaredError(const MeanSquaredErrorOptions& options)
    : PredictionMetric("MeanSquaredError"),
      options_(options),
      sum_squared_error_(
          add_state("sum_squared_error", zeros_for(name(), options.num_outputs), StateReduction::kSum)),
      total_(add_state("total", at::zeros({}, at::kLong), StateReduction::kSum)) {}

at::Tensor MeanSquaredError::compute() const {
  const auto mean = value(sum_squared_error_) / value(total_);
  return options_.squared ? mean : mean.sqrt();
}

bool MeanSquaredError::has_states_of(const PredictionMetric& other) const {
  const auto* error = dynamic_cast<const MeanSquaredError*>(&other);
  return error && error->options_.num_outputs == options_.num_outputs;
}

std::vector<at::Tensor> MeanSquaredError::batch_states(const at::Tensor& preds,
                                                       const at::Tensor& target) const {
  const auto errors = difference(name(), preds, target, options_.num_outputs);
  return {errors.square().sum(0), rows_of(errors)};
}

MeanAbsoluteError::MeanAbsoluteError(const MeanAbsoluteErrorOptions& options)
    : PredictionMetric("MeanAbsoluteError"),
      options_(options),
      sum_abs_error_(
          add_state("sum_abs_error", zeros_for(name(), options.num_outputs), StateReduction::kSum)),
      total_(add_state("total", at::zeros({}, at::kLong), StateReduction::kSum)) {}

at::Tensor MeanAbsoluteError::compute() const { return value(sum_abs_error_) / value(total_); }

bool MeanAbsoluteError::has_states_of(const PredictionMetric& other) const {
  const auto* error = dynamic_cast<const MeanAbsoluteError*>(&other);
  return error && error->options_.num_outputs == options_.num_outputs;
}

std::vector<at::Tensor> MeanAbsoluteError::batch_states(const at::Tensor& preds,
                                                        const at::Tensor& target) const {
  const auto errors = difference(name(), preds, target, options_.num_outputs);
  return {errors.abs().sum(0), rows_of(errors)};
}

}  // namespace lockstep::metrics
