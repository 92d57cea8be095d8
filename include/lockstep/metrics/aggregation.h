// Mean, Sum, Min and Max of numbers that a program has at hand: losses, times, norms.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/metrics/metric.h>

namespace lockstep::metrics {

/// What is done with values that are NaN, or whose weight is.
enum class NanStrategy {
  kWarn,    ///< they are left out, which is said once
  kIgnore,  ///< they are left out
  kError,   ///< update() throws a DataError
  kDisable  ///< they count, and make the result NaN
};

LOCKSTEP_API std::span<const OptionName<NanStrategy>> option_names(NanStrategy);

/// Options of Mean, Sum, Min and Max.
struct AggregationOptions {
  std::variant<EnumOption<NanStrategy>, double> nan_strategy =
      NanStrategy::kWarn;  ///< a number takes the place of NaN
};

/// The weighted mean, sum(value * weight) / sum(weight), in float64; as torchmetrics' MeanMetric. NaN without
/// values.
class LOCKSTEP_API Mean final : public Metric {
 public:
  explicit Mean(const AggregationOptions& options = {});

  /// Takes up all elements of `value`, real, each with its weight; `weight` is broadcast to the shape of
  /// `value`, and 1 where it is left out.
  /// @throws DataError for shapes or dtypes that do not fit, and for NaN under NanStrategy::kError
  void update(const at::Tensor& value, const at::Tensor& weight = {});
  /// Takes a value in, which counts `weight` times.
  void update(double value, double weight = 1);

  /// As update(), and gives the mean of these alone. Not Collective.
  at::Tensor forward(const at::Tensor& value, const at::Tensor& weight = {});

  at::Tensor compute() const override;

 private:
  std::vector<at::Tensor> batch_states(const at::Tensor& value, const at::Tensor& weight) const;

  AggregationOptions options_;
  StateId mean_value_, weight_;
};

/// Base of Sum, Min and Max: one number, float64.
class LOCKSTEP_API Aggregator : public Metric {
 public:
  /// Takes up all elements of `value`, real.
  /// @throws DataError for other dtypes, and for NaN under NanStrategy::kError
  void update(const at::Tensor& value);
  /// Takes a value in.
  void update(double value);

  /// As update(), and gives the result for these alone. Not Collective.
  at::Tensor forward(const at::Tensor& value);

  at::Tensor compute() const override;

 protected:
  /// `state` is the name of the state, which begins as `initial`.
  Aggregator(std::string name, std::string state, double initial, StateReduction reduction,
             const AggregationOptions& options);

 private:
  at::Tensor batch_state(const at::Tensor& value) const;

  AggregationOptions options_;
  StateReduction reduction_;
  double initial_;
  StateId value_;
};

/// The sum; 0 without values. As torchmetrics' SumMetric.
class LOCKSTEP_API Sum final : public Aggregator {
 public:
  explicit Sum(const AggregationOptions& options = {});
};

/// The smallest value; infinity without values. As torchmetrics' MinMetric.
class LOCKSTEP_API Min final : public Aggregator {
 public:
  explicit Min(const AggregationOptions& options = {});
};

/// The largest value; minus infinity without values. As torchmetrics' MaxMetric.
class LOCKSTEP_API Max final : public Aggregator {
 public:
  explicit Max(const AggregationOptions& options = {});
};

}  // namespace lockstep::metrics
