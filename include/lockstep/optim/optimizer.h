// The optimizer interface: named parameters in groups, one step, named state.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/state/state_tree.h>

namespace lockstep {

struct StateSwap;

/// A parameter (or a shard of one) and its name in the model, such as `net.0.weight`.
struct NamedParameter {
  std::string name;   ///< dotted, as the module has it
  at::Tensor tensor;  ///< the parameter itself, which shares its memory
};

/// One tensor of an optimizer's state. It aliases the optimizer's memory: writing to it changes the state.
struct OptimizerState {
  std::string parameter;  ///< name of the parameter it belongs to
  std::string kind;       ///< torch's name: `exp_avg`, `exp_avg_sq`, `momentum_buffer`, `step`
  at::Tensor tensor;      ///< shape of the parameter (`step`: int64, no dimensions)
};

/// Updates parameters from their gradients. Holds the parameters' tensors (shared with the model), owns its
/// state. Nothing here is a collective, but for step() of optimizers that exchange pieces: under data
/// parallelism every rank steps with the same gradients.
/// Not thread-safe.
///
/// To write your own: derive, hand the parameters to the constructor, implement the three functions, and
/// return it from a function given to OptimizerFactory. It may wrap another one and write to the parameters
/// itself: under a NoGradGuard, not by data() or data_ptr(), which copies in 16 bits take no notice of.
class LOCKSTEP_API Optimizer {
 public:
  /// Parameters that share settings. Schedulers change lr, momentum and betas; step() reads them.
  struct Group {
    std::string pattern;                       ///< glob that chose the parameters; empty for the rest
    std::vector<std::string> parameters = {};  ///< names, in the model's order
    double lr = 0.0;                           ///< learning rate of the next step
    double initial_lr = 0.0;              ///< learning rate before any scheduler: schedulers start from it
    double weight_decay = 0.0;            ///< decay of weights
    std::optional<double> momentum = {};  ///< where the optimizer has one (SGD, Muon)
    std::optional<std::array<double, 2>> betas = {};  ///< where the optimizer has them (Adam, Lion)
  };

  virtual ~Optimizer();

  /// One update of every parameter whose gradient is defined, with the gradients taken times `grad_scale`
  /// (1, or what clipping asks for: saves a pass over the gradients). A parameter whose gradient is undefined
  /// is left alone: no decay, no momentum, and its step count stays. Collective where pieces are exchanged,
  /// see takes_pieces().
  /// @throws ConfigError for a gradient it cannot use (sparse, other shape); nothing has changed then
  virtual void step(double grad_scale = 1.0) = 0;

  /// Forgets the gradients, computes the loss and its gradients, and returns the loss, the same on all ranks.
  using Closure = std::function<double()>;

  /// Whether the update of an element depends on that element alone, so that an optimizer over a shard of a
  /// parameter does what one over the whole does. Not Lamb, Muon and LBFGS; override it where yours does not.
  virtual bool is_elementwise() const { return true; }

  /// Whether its parameters may be pieces of tensors that lie on several ranks: where is_elementwise(), and
  /// where it asks the other ranks by a PieceExchange, which makes step() Collective.
  virtual bool takes_pieces() const { return is_elementwise(); }

  /// Whether a step evaluates the loss itself, any number of times (LBFGS): step() throws then.
  virtual bool needs_closure() const { return false; }

  /// One step for which the loss is evaluated by `closure`: once, before step(), unless needs_closure().
  /// Returns the first loss. Collective as the closure is.
  virtual double step_with(const Closure& closure);

  /// Lets the next step(), and none after it, be left out where `found_inf`, float32 without dimensions on
  /// the parameters' device, is not 0: the device finds that out, and nobody waits for it. False, and nothing
  /// happens, where the optimizer cannot; then whoever asks must read the number. For gradient scalers.
  virtual bool leave_out_next_step_if(const at::Tensor& found_inf);

  /// Keeps its state on disk from now on, but for what a step works on. Before the first step. For
  /// strategies.
  /// @throws ConfigError unless overridden, or when there is state already
  virtual void swap_state(const StateSwap& where);

  /// torch's class name, such as "AdamW".
  virtual std::string_view name() const = 0;

  /// All state there is, in the order of the parameters; what a checkpoint holds. Parameters that require a
  /// gradient have state from the start, frozen ones from their first gradient on.
  virtual std::vector<OptimizerState> state() = 0;

  /// Copies `saved`, as state() gave it, into the state. Both must hold the same entries with the same
  /// shapes.
  /// @throws CheckpointError naming the entry that is missing, unknown or of another shape; nothing has
  /// changed then
  void load_state(std::span<const OptimizerState> saved);

  /// Forgets the gradients; or fills them with zeros in place, so that views (a bucket's) stay attached.
  void zero_grad(bool set_to_none = true);

  /// Calls `forget` whenever zero_grad() is called: for a strategy that holds gradients of the parameters
  /// elsewhere until they are averaged.
  void on_zero_grad(std::function<void()> forget) { on_zero_grad_ = std::move(forget); }

  /// The groups: those with a pattern in the order given, then the rest. Change values, never the parameters.
  std::vector<Group>& groups() { return groups_; }
  /// The groups, to read.
  const std::vector<Group>& groups() const { return groups_; }

  /// Adds a group, the last from now on, with the settings of the first one but for the learning rate, and
  /// returns it. Schedulers that are there already change its rate by what they change those of other groups
  /// by; those whose rates do not depend on a group's own leave it alone. torch's add_param_group.
  /// @throws ConfigError for parameters that the constructor would not take or that it has already, and where
  /// the optimizer cannot grow; nothing has changed then
  Group& add_param_group(std::vector<NamedParameter> parameters, double lr);

  /// The parameters, in the order given.
  const std::vector<NamedParameter>& parameters() const { return parameters_; }

 protected:
  /// @throws ConfigError if there are no parameters, or a name or tensor occurs twice, or a tensor is no
  /// dense floating-point one
  Optimizer(std::vector<NamedParameter> parameters, std::vector<Group> groups);

  /// Makes state() list what `saved` does, as far as it knows it; for optimizers that create state on demand.
  virtual void prepare_state(std::span<const OptimizerState> saved);

  /// Takes parameters() from number `first` on, which form groups().back(). For optimizers that keep
  /// something for each parameter. @throws ConfigError unless overridden
  virtual void adopt_parameters(std::size_t first);

 private:
  std::vector<NamedParameter> parameters_;
  std::vector<Group> groups_;
  std::function<void()> on_zero_grad_;
};

/// `name`, `groups` (each group's values and its parameters' names) and `state`: per parameter its
/// tensors under torch's names. The tensors alias the optimizer's. Not Collective.
LOCKSTEP_API StateTree state_of(Optimizer& optimizer);

/// Copies tensors in place and sets the groups' values.
/// @throws CheckpointError naming what is missing, unknown or of another optimizer; nothing has changed then
LOCKSTEP_API void load_state(Optimizer& optimizer, const StateTree& state);

}  // namespace lockstep
