#include <lockstep/metrics/aggregation.h>

#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include <lockstep/base/log.h>

#include "metrics/inputs.h"

namespace lockstep::metrics {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Flat, float64, of equal sizes.
struct Weighted {
  at::Tensor values;
  at::Tensor weights;
};

void check_real(const std::string& what, const at::Tensor& tensor) {
  detail::require_input(tensor.defined() && !tensor.is_complex(), what, tensor, "real numbers");
}

at::Tensor broadcast(const std::string& owner, const at::Tensor& weight, const at::Tensor& value) {
  check_real(owner + ": weight", weight);
  const bool fits = at::is_expandable_to(weight.sizes(), value.sizes());
  detail::require_input(fits, owner + ": weight", weight,
                        c10::str("a shape that expands to ", value.sizes()));
  return weight.expand(value.sizes()).flatten().to(at::kDouble);
}

Weighted without(const Weighted& all, const at::Tensor& is_nan, NanStrategy strategy,
                 const std::string& owner) {
  if (strategy == NanStrategy::kDisable) return all;
  if (strategy == NanStrategy::kError) detail::refuse_input(owner + ": value", "numbers", "NaN");
  if (strategy == NanStrategy::kWarn)
    warn_once("metrics." + owner + ".nan", owner + ": values that are NaN are left out");
  const auto is_number = is_nan.logical_not();
  return {all.values.masked_select(is_number), all.weights.masked_select(is_number)};
}

Weighted with_nan_handled(const Weighted& all, const AggregationOptions& options, const std::string& owner) {
  const auto is_nan = all.values.isnan().logical_or_(all.weights.isnan());
  if (!is_nan.any().item<bool>()) return all;
  if (const auto* strategy = std::get_if<EnumOption<NanStrategy>>(&options.nan_strategy))
    return without(all, is_nan, *strategy, owner);
  const auto replacement = std::get<double>(options.nan_strategy);
  return {all.values.masked_fill(is_nan, replacement), all.weights.masked_fill(is_nan, 1)};
}

at::Tensor flat_values(const std::string& owner, const at::Tensor& value) {
  check_real(owner + ": value", value);
  return value.detach().flatten().to(at::kDouble);
}

at::Tensor scalar(double value) { return at::scalar_tensor(value, at::kDouble); }

}  // namespace

Mean::Mean(const AggregationOptions& options)
    : Metric("Mean"),
      options_(options),
      mean_value_(add_state("mean_value", scalar(0), StateReduction::kSum)),
      weight_(add_state("weight", scalar(0), StateReduction::kSum)) {}

void Mean::update(const at::Tensor& value, const at::Tensor& weight) {
  update_states(batch_states(value, weight));
}

void Mean::update(double value, double weight) { update(scalar(value), scalar(weight)); }

at::Tensor Mean::forward(const at::Tensor& value, const at::Tensor& weight) {
  return forward_states(batch_states(value, weight));
}

at::Tensor Mean::compute() const { return value(mean_value_) / value(weight_); }

std::vector<at::Tensor> Mean::batch_states(const at::Tensor& value, const at::Tensor& weight) const {
  const at::NoGradGuard no_grad;
  const auto values = flat_values(name(), value);
  const auto weights =
      weight.defined() ? broadcast(name(), weight, value).to(values.device()) : at::ones_like(values);
  const auto counted = with_nan_handled({values, weights}, options_, name());
  return {(counted.values * counted.weights).sum(), counted.weights.sum()};
}

Aggregator::Aggregator(std::string name, std::string state, double initial, StateReduction reduction,
                       const AggregationOptions& options)
    : Metric(std::move(name)),
      options_(options),
      reduction_(reduction),
      initial_(initial),
      value_(add_state(std::move(state), scalar(initial), reduction)) {}

void Aggregator::update(const at::Tensor& value) { update_states({batch_state(value)}); }
void Aggregator::update(double value) { update(scalar(value)); }
at::Tensor Aggregator::forward(const at::Tensor& value) { return forward_states({batch_state(value)}); }
at::Tensor Aggregator::compute() const { return value(value_); }

at::Tensor Aggregator::batch_state(const at::Tensor& value) const {
  const at::NoGradGuard no_grad;
  const auto values = flat_values(name(), value);
  const auto counted = with_nan_handled({values, at::ones_like(values)}, options_, name()).values;
  if (counted.numel() == 0) return scalar(initial_);
  if (reduction_ == StateReduction::kSum) return counted.sum();
  return reduction_ == StateReduction::kMin ? counted.min() : counted.max();
}

Sum::Sum(const AggregationOptions& options)
    : Aggregator("Sum", "sum_value", 0, StateReduction::kSum, options) {}

Min::Min(const AggregationOptions& options)
    : Aggregator("Min", "min_value", kInfinity, StateReduction::kMin, options) {}

Max::Max(const AggregationOptions& options)
    : Aggregator("Max", "max_value", -kInfinity, StateReduction::kMax, options) {}

std::span<const OptionName<NanStrategy>> option_names(NanStrategy) {
  static constexpr OptionName<NanStrategy> kNames[] = {{"warn", NanStrategy::kWarn},
                                                       {"ignore", NanStrategy::kIgnore},
                                                       {"error", NanStrategy::kError},
                                                       {"disable", NanStrategy::kDisable}};
  return kNames;
}

}  // namespace lockstep::metrics
