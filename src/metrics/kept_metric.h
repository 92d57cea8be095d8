// What a checkpoint keeps of a metric whose object only its owner can make.
#pragma once

#include <lockstep/base/export.h>
#include <lockstep/metrics/metric.h>

namespace lockstep::metrics::detail {

/// Stands for a metric until it is there: it has its states, and takes part in sync(), but cannot compute.
class KeptMetric final : public Metric {
 public:
  /// This rank's own states of `metric`, and what they are reduced by.
  static StateTree keep(const Metric& metric);

  /// Whether load_state() has been called since reset().
  static bool is_loaded(const Metric& metric);

  /// @throws CheckpointError as the getters of StateTree, or for an unknown reduction
  explicit KeptMetric(const StateTree& kept);

  /// Puts what was kept before the updates of `metric`, unless its load_state() has brought them back.
  /// @throws ConfigError while it is synced; CheckpointError when its states are others
  void hand_over(Metric& metric) const;

  /// @throws ConfigError
  at::Tensor compute() const override;
};

}  // namespace lockstep::metrics::detail
