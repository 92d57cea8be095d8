// The states of a metric: what they are reduced by, and their values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

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

/// All of a metric's.
struct MetricStates {
  std::string owner;  ///< name of the metric's class
  std::vector<MetricState> states = {};
  std::int64_t update_count = 0;
  bool is_loaded = false;                            ///< by load_state(), since reset()
  std::optional<std::vector<MetricState>> own = {};  ///< while synced: this rank's
};

/// @throws DataError naming the state when `batch` cannot be taken up
void check_fits(const std::string& owner, const MetricState& state, const at::Tensor& batch);

/// Takes up `batch`, which fits; `update_count` is 1 for the first one.
void take_up(MetricState& state, const at::Tensor& batch, std::int64_t update_count);

/// What `states` were when they were declared.
std::vector<MetricState> initial_states(const std::vector<MetricState>& states);

/// The state's value; rows as one tensor.
at::Tensor value_of(const MetricState& state);

/// Replaces the states by their reduction over ranks. Collective, blocking.
void reduce_over_ranks(const std::vector<MetricState*>& states, const Communicator& comm);

/// Replaces the rows of each state, all of kCat, by those of all ranks. Collective, blocking.
void gather_rows(const std::vector<MetricState*>& states, const Communicator& comm);

}  // namespace lockstep::metrics::detail
