// Metric: a value over many batches, kept as states that can be reduced over ranks. Names and values are
// those of torchmetrics.
//
//   metrics::Accuracy accuracy(metrics::Multiclass{.num_classes = 10});
//   accuracy.update(logits, target);  // each batch, on the rank that has it
//   accuracy.sync(comm);              // at the end of the epoch, all ranks together
//   const auto value = accuracy.compute();
//   accuracy.reset();
//
// A metric of your own declares its states once, and computes the update of each from a batch:
//
//   class WordErrorRate final : public metrics::Metric {
//    public:
//     WordErrorRate() : Metric("WordErrorRate") {}
//     void update(std::int64_t errors, std::int64_t words) {
//       update_states({at::scalar_tensor(errors, at::kLong), at::scalar_tensor(words, at::kLong)});
//     }
//     at::Tensor compute() const override { return value(errors_) / value(words_); }
//
//    private:
//     StateId errors_ = add_state("errors", at::zeros({}, at::kLong), metrics::StateReduction::kSum);
//     StateId words_ = add_state("words", at::zeros({}, at::kLong), metrics::StateReduction::kSum);
//   };
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/state/state_tree.h>

namespace lockstep::metrics {

namespace detail {
struct MetricStates;
class SavedMetric;
}  // namespace detail

/// How a state takes up the next batch, and how the states of all ranks become one.
enum class StateReduction {
  kSum,   ///< sum
  kMean,  ///< mean over updates, then over ranks, however many updates each had; a true mean has two sums
  kMin,   ///< smallest value, NaN where there is one
  kMax,   ///< largest value, NaN where there is one
  kCat    ///< all rows, those of rank 0 first
};

/// Base of all metrics. States are where the batches are that they have taken up, and on the CPU before the
/// first and after sync(); compute() reads them and nothing else. Move-only. Not thread-safe.
class LOCKSTEP_API Metric {
 public:
  virtual ~Metric();
  Metric(const Metric&) = delete;
  Metric& operator=(const Metric&) = delete;

  /// The class's name: "Accuracy".
  const std::string& name() const;

  /// The value over all updates since reset(): of this rank's own, or, after sync(), of all ranks'. Of
  /// float64 but for counts, which are int64. Not Collective.
  virtual at::Tensor compute() const = 0;

  /// Begins anew.
  void reset();

  /// Replaces the states by their reduction over all ranks, until unsync() or reset(). Ranks may have had
  /// other numbers of updates, or none. Collective, blocking: one all_reduce for all sums and means, one for
  /// all minima, one for all maxima, and two gathers for rows, of those that there are.
  /// @throws ConfigError when it is synced already; as Communicator::all_reduce. Nothing has changed then
  void sync(const Communicator& comm);

  /// Goes back to this rank's own states. @throws ConfigError when it is not synced
  void unsync();

  /// Whether the state is that of all ranks.
  bool is_synced() const;

  /// Updates on this rank since reset().
  std::int64_t update_count() const;

  /// This rank's own states, synced or not: `update_count`, and each under its name.
  StateTree state() const;

  /// Goes on from there, not synced.
  /// @throws CheckpointError as the getters of StateTree; nothing has changed then
  void load_state(const StateTree& state);

 protected:
  /// A state that was declared.
  struct StateId {
    std::size_t index;  ///< its place among the states that were declared
  };

  explicit Metric(std::string name);
  Metric(Metric&&) noexcept;
  Metric& operator=(Metric&&) noexcept;

  /// Declares a state that begins as `initial`: float64, or int64 to be summed.
  /// @throws ConfigError for another dtype, kCat or a name that is taken
  StateId add_state(std::string name, const at::Tensor& initial, StateReduction reduction);

  /// Declares a state that keeps rows: of kCat.
  StateId add_cat_state(std::string name);

  /// Takes up a batch: for each state, in the order of their declaration, a tensor of its shape; for one of
  /// rows, any number of them. Copies what it keeps, and no graph.
  /// @throws ConfigError while synced; DataError for tensors that do not fit. Nothing has changed then
  void update_states(const std::vector<at::Tensor>& batch);

  /// update_states(), and gives what compute() is for that batch alone: torchmetrics' forward.
  at::Tensor forward_states(const std::vector<at::Tensor>& batch);

  /// The state's value; rows as one tensor, an empty one of float32 where there is none.
  at::Tensor value(StateId id) const;

 private:
  friend LOCKSTEP_API void sync(std::span<Metric* const> metrics, const Communicator& comm);
  friend class MetricCollection;
  friend class detail::SavedMetric;

  std::shared_ptr<detail::MetricStates> states_;  // shared with those of a collection that take up the same
};

/// As Metric::sync() for all of `metrics`, with no more collectives than for one. Ranks give the same metrics
/// in the same order. Collective, blocking.
LOCKSTEP_API void sync(std::span<Metric* const> metrics, const Communicator& comm);

/// What the end of an epoch asks for: syncs all of `metrics` together, computes each, and resets them. Ranks
/// give the same metrics in the same order. Collective, blocking. @throws as Metric::sync
LOCKSTEP_API std::vector<at::Tensor> finish_epoch(std::span<Metric* const> metrics, const Communicator& comm);

// PredictionMetric: metrics that compare predictions with targets.

/// Base of metrics over pairs of tensors.
class LOCKSTEP_API PredictionMetric : public Metric {
 public:
  /// Takes up a batch; each metric says which shapes and dtypes. Batches may differ in size, and be empty.
  /// Tensors on any device; no graph is kept.
  /// @throws DataError for tensors that do not fit, or hold values out of range; nothing has changed then
  void update(const at::Tensor& preds, const at::Tensor& target);

  /// As update(), and gives the value for that batch alone. Not Collective.
  at::Tensor forward(const at::Tensor& preds, const at::Tensor& target);

  /// Whether the same batches bring `other` to the same states. A MetricCollection then keeps them once.
  virtual bool has_states_of(const PredictionMetric& other) const;

 protected:
  /// As Metric.
  using Metric::Metric;

 private:
  friend class MetricCollection;

  /// What a batch brings to each state, in the order of their declaration. Called without gradients.
  virtual std::vector<at::Tensor> batch_states(const at::Tensor& preds, const at::Tensor& target) const = 0;
};

}  // namespace lockstep::metrics
