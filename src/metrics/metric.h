// The states of a metric: what they are reduced by, their values, and what a checkpoint holds of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/metrics/metric.h>

namespace lockstep::metrics::detail {

/// One state. Tensors are never changed in place: a copy of it is a snapshot.
struct MetricState {
  std::string name;
  StateReduction reduction;
  at::Tensor initial;             ///< none for kCat
  at::Tensor value;               ///< none for kCat
  std::vector<at::Tensor> parts;  ///< for kCat: rows, in the order in which they came; none is empty
};

/// A number that no call has given before. Thread-safe.
std::uint64_t next_revision();

/// All states of a metric.
struct MetricStates {
  std::string owner;  ///< name of the metric's class
  std::vector<MetricState> states = {};
  std::int64_t update_count = 0;
  std::uint64_t revision = next_revision();          ///< another one after each update, reset and load
  bool is_loaded = false;                            ///< by load_state(), since reset()
  std::optional<std::vector<MetricState>> own = {};  ///< while synced: the states of this rank
};

/// @throws DataError naming the state when it cannot be updated with `batch`
void check_fits(const std::string& owner, const MetricState& state, const at::Tensor& batch);

/// Updates `state` with `batch`, which fits; `update_count` is 1 for the first one.
void take_up(MetricState& state, const at::Tensor& batch, std::int64_t update_count);

/// `states` with their initial values.
std::vector<MetricState> initial_states(const std::vector<MetricState>& states);

/// The state's value; rows as one tensor.
at::Tensor value_of(const MetricState& state);

/// Replaces the states by their reduction over ranks. Collective, blocking.
void reduce_over_ranks(const std::vector<MetricState*>& states, const Communicator& comm);

/// Replaces the rows of each state, all of kCat, by those of all ranks. Collective, blocking.
void gather_rows(const std::vector<MetricState*>& states, const Communicator& comm);

/// Stands in for a metric from a checkpoint until its owner makes it again: it has its states and takes part
/// in sync(), but cannot compute.
class SavedMetric final : public Metric {
 public:
  /// The states of `metric` on this rank, and what they are reduced by.
  static StateTree save(const Metric& metric);

  /// Whether load_state() has been called since reset().
  static bool is_loaded(const Metric& metric);

  /// A number that is another one whenever its states have been changed, but by sync() and unsync().
  static std::uint64_t revision(const Metric& metric);

  /// @throws CheckpointError as the getters of StateTree, or for an unknown reduction
  explicit SavedMetric(const StateTree& saved);

  /// Puts the saved states before the updates of `metric`, unless its load_state() has restored them.
  /// @throws ConfigError while it is synced; CheckpointError when its states are others
  void hand_over(Metric& metric) const;

  /// @throws ConfigError
  at::Tensor compute() const override;
};

}  // namespace lockstep::metrics::detail
