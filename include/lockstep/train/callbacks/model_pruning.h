// ModelPruning: sets the least important weights to zero, where they stay.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/option_visitor.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

/// How much is pruned each time, of what is not pruned yet: a number of weights (structured: of slices), a
/// fraction of them, or a fraction by the number of the epoch.
using PruningAmount = std::variant<std::int64_t, double, std::function<double(std::int64_t)>>;

/// Always or never, or by the number of the epoch.
using PruningSwitch = std::variant<bool, std::function<bool(std::int64_t)>>;

/// Names, meaning and defaults are Lightning's.
struct ModelPruningOptions {
  /// Required: "l1_unstructured" (smallest first), "random_unstructured", "ln_structured" (whole slices, of
  /// the smallest norm first) or "random_structured".
  std::string pruning_fn = {};
  /// Full names, such as "net.0.weight"; empty: all parameters whose last name is one of `parameter_names`.
  std::vector<std::string> parameters_to_prune = {};
  std::vector<std::string> parameter_names = {"weight", "bias"};  ///< names of parameters within modules
  bool use_global_unstructured = true;  ///< compare the weights of all parameters; false: of each on its own
  PruningAmount amount = 0.5;           ///< how much is pruned at a time
  PruningSwitch apply_pruning = true;   ///< whether, or by epoch, weights are pruned
  bool make_pruning_permanent =
      true;  ///< forget after fit what was pruned; false: another fit keeps it pruned
  /// Set what is left to what it was before training. Frankle, Carbin: arXiv 1803.03635.
  PruningSwitch use_lottery_ticket_hypothesis = true;
  bool resample_parameters = false;              ///< then draw new values instead, in layers that can
  std::optional<std::int64_t> pruning_dim = {};  ///< structured: the dimension whose slices are pruned
  std::optional<double> pruning_norm = {};       ///< ln_structured: n
  int verbose = 0;                               ///< 1: say how much is pruned; 2: of each parameter, too
  bool prune_on_train_epoch_end = true;          ///< false: at the end of each validation
};

LOCKSTEP_API void describe(OptionVisitor& visitor, ModelPruningOptions& options);

/// Prunes at the end of each training epoch. What was pruned is 0 from then on, in the model and in its
/// checkpoints: gradients are masked before they are clipped, weights after each optimizer step, in place; no
/// module is replaced. Masks are the same on all ranks, and in checkpoints. Strategies that shard the weights
/// are refused. Lightning's ModelPruning.
class LOCKSTEP_API ModelPruning : public Callback {
 public:
  /// @throws ConfigError naming the option that is unknown, out of range or missing
  explicit ModelPruning(ModelPruningOptions options);

  /// The masks by the names of parameters: 1 where a weight is left, 0 where it is pruned. Empty outside of
  /// fit.
  std::vector<std::pair<std::string, at::Tensor>> masks() const;
  /// The fraction of the chosen weights that are pruned.
  double sparsity() const;

  /// Which of the parameters that the options choose are pruned; all unless overridden.
  virtual std::vector<std::string> filter_parameters_to_prune(std::vector<std::string> names) const {
    return names;
  }

  void setup(TrainContext& context) override;
  /// @throws ConfigError naming a parameter that the module has not
  void on_fit_start(TrainContext& context) override;
  void on_fit_end(TrainContext& context) override;
  void on_before_optimizer_step(StepContext& step) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void on_train_epoch_end(TrainContext& context) override;
  void on_validation_end(TrainContext& context) override;
  void on_save_checkpoint(TrainContext& context, StateTree& shared) override;
  void on_load_checkpoint(TrainContext& context, const StateTree& shared) override;

 private:
  struct Pruned {
    std::string name;
    at::Tensor weight;    // the module's
    at::Tensor mask;      // of its element type
    at::Tensor original;  // its value before training; undefined unless it may be wanted
  };

  void find_parameters(const AnyModule& module);
  void prune_if_due(const TrainContext& context);
  std::vector<at::Tensor> next_masks(const std::variant<std::int64_t, double>& amount) const;
  void prune(const TrainContext& context, const std::variant<std::int64_t, double>& amount);
  void reset_to_originals(const TrainContext& context) const;
  void apply_masks() const;
  std::vector<std::int64_t> pruned_counts() const;
  void report(const TrainContext& context, const std::vector<std::int64_t>& before) const;

  ModelPruningOptions options_;
  std::vector<Pruned> parameters_;
  std::int64_t masked_step_ = 0;  // global_step when weights were masked last
};

}  // namespace lockstep
