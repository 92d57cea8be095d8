// ShardedEngine: trains a module of which every rank keeps a shard.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/parallel/autograd.h>
#include <lockstep/parallel/sharded/fsdp.h>
#include <lockstep/parallel/sharded/sharding_plan.h>
#include <lockstep/state/state_tree.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Which ranks give a run that several of them hold.
enum class ShardCopies {
  kOne,  ///< one: for files
  kAll   ///< each: for what is to be loaded
};

/// Factors of gradients that are left to the optimizer's step, which reads them anyway.
class LOCKSTEP_API PendingScales {
 public:
  virtual ~PendingScales();
  /// Of the gradient of a piece. Local.
  virtual double factor_of(const at::Tensor& piece) const = 0;
  /// Multiplies all of them now. All ranks alike, but does not communicate.
  virtual void apply_all() = 0;
};

/// The element type of values that are gathered.
enum class WholeValues {
  kOwnType,  ///< the model's own
  kMaster    ///< that of the shards, which may be wider
};

/// Shards a module that needs no wrapper. One step:
///
///     auto loss = ...;             // any forward: units gather themselves when operators use them
///     engine.backward(loss);       // gradients are averaged, and land on the shards
///     optimizer.step();            // an optimizer of engine.parameters()
///     engine.after_step();
///
/// The module's tensors stay the same objects. They have no memory while their unit is not gathered;
/// LibTorch's operators gather it, raw pointers are refused by an exception that says so. Their `.grad()` is
/// empty after an averaged backward: gradients are those of the shards. To accumulate over several passes,
/// run all but the last one by loss.backward() or under no_sync(); gradients then wait, whole, on this rank.
///
/// A write to a parameter (by an operator; on all ranks alike) is kept. Moving, converting or unfreezing
/// parameters is not possible any more, and named at the next backward; freezing them for a while is. All
/// ranks must use units in the same order, in evaluation, too; where they do not, both sides' units are
/// named. They freeze the same parameters, too: what is frozen and has no gradient is not averaged. For one
/// thread at a time. Modules on the CPU.
class LOCKSTEP_API ShardedEngine {
 public:
  /// Compares the modules of all ranks, gives every rank rank 0's values, and shards. Peak memory is the
  /// module, its shards and the largest unit; of a module that was built within DeferredInit the shards and
  /// the largest parameter. Plans that keep units until the step reserve memory for all of them, too.
  /// Collective, blocking.
  /// @throws CollectiveMismatch naming the first parameter or buffer that differs between ranks
  /// @throws ConfigError for options that contradict each other or do not fit the number of ranks, a policy
  /// that matches nothing, parameters that share memory, or are sharded already: the module is as before
  /// @throws IoError where the disk has no room for shards: the module is of no further use, for parts of
  /// what has been cut are on other ranks alone
  ShardedEngine(const torch::nn::Module& module, Communicator comm, const Fsdp& options = {},
                int ranks_per_node = 1);
  /// The same by a plan.
  ShardedEngine(const torch::nn::Module& module, const ShardingPlan& plan, Communicator comm);
  /// Does not communicate. Parameters are left without memory, unless restore() was called.
  ~ShardedEngine();
  ShardedEngine(const ShardedEngine&) = delete;
  ShardedEngine& operator=(const ShardedEngine&) = delete;

  /// This rank's piece of every trained parameter, under its name and in the module's order: flat tensors,
  /// some of them empty. What an optimizer takes. They share the shards' memory. Not Collective.
  std::vector<NamedParameter> parameters() const;

  /// What an optimizer of parameters() that looks at whole tensors (Lamb, Muon) asks the other ranks by:
  /// `OptimizerFactory(Muon{}).create(engine.parameters(), engine.exchange())`. Of no use once the engine is
  /// gone. Not Collective.
  std::shared_ptr<PieceExchange> exchange() const;

  /// Lets `optimizer`, of parameters(), keep its state on disk, if the plan says so, and takes the room for
  /// that and for gradients that are to be there. Before its first step. Collective, blocking.
  /// @throws ConfigError for one that cannot; IoError with the bytes needed and free where there is no room
  void offload_state(Optimizer& optimizer) const;

  /// loss.backward(), after which the pieces' gradients, in the pieces' type or, if the plan keeps low
  /// precision, in that of the computation, are the mean over ranks of what each rank had accumulated; under
  /// no_sync() that waits. When it throws on all ranks alike, all gradients are gone,
  /// those of earlier backwards, too, and the next one starts clean.
  /// Collective, blocking.
  /// @throws ConfigError naming a parameter that is no longer what was sharded; for create_graph
  void backward(const at::Tensor& loss, const BackwardOptions& options = {});

  /// One backward that averages the gradients of several modules, no two of which share a parameter.
  static void backward(const at::Tensor& loss, std::span<ShardedEngine* const> engines,
                       const BackwardOptions& options = {});

  /// After the optimizer's step: forgets gathered parameters, which are outdated; buffers become rank 0's, if
  /// broadcast_buffers. Before anybody uses the module again: under plans that keep what is gathered until
  /// the step, this rank's part of it is new by then, and the others' are not. Now and then as
  /// check_replicas(). Collective, blocking.
  void after_step();

  /// Compares, between ranks that hold the same shard, what operators on the module's parameters have written
  /// to. Collective, blocking. @throws Error on all ranks naming a parameter that differs
  void check_replicas();

  /// While it lives, backward passes stay local.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(ShardedEngine& engine);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    ShardedEngine& engine_;
  };
  /// `const auto local = engine.no_sync();`
  NoSync no_sync() { return NoSync(*this); }
  /// Whether such a scope lives. Local.
  bool is_local() const;

  /// Averages what earlier backward passes have added up on this rank, as one that averages would. All units
  /// take part, whether they have gradients or not. Collective, blocking.
  void average_accumulated();

  /// Forgets gradients that wait for a backward that averages, of all parameters or of some of parameters().
  /// Not Collective.
  void drop_accumulated_gradients();
  /// Forgets what the window accumulated for `parameters`.
  void drop_accumulated_gradients(std::span<const NamedParameter> parameters);

  /// The p-norm of the gradients of `parameters`, which are some of parameters(), over all ranks: for p = 2
  /// the bits of grad_norm() on the whole. Collective, blocking.
  double grad_norm(std::span<const NamedParameter> parameters, double norm_type = 2.0) const;

  /// Scales the gradients so that their norm is at most `max_norm`; returns what it was. Collective,
  /// blocking. @throws as clip_grad_norm()
  double clip_grad_norm(std::span<const NamedParameter> parameters, double max_norm, double norm_type = 2.0,
                        bool error_if_nonfinite = false) const;
  /// The same, whose norm is read when somebody asks for it; on a device nobody waits for it. Collective.
  Scalar clip_grad_norm_lazily(std::span<const NamedParameter> parameters, const GradientClip& clip) const;

  /// Adds the whole values of all parameters to `values` on rank 0, copies, by the module's tensors.
  /// Collective, blocking.
  void gather_whole(std::unordered_map<const at::TensorImpl*, at::Tensor>& values,
                    WholeValues type = WholeValues::kOwnType);

  /// This rank's run of `parameter`, in the shard's memory; nothing if it is not sharded here. Not
  /// Collective.
  std::optional<TensorShard> shard_of(const at::Tensor& parameter,
                                      ShardCopies copies = ShardCopies::kAll) const;
  /// This rank's run of a tensor in the shape of parameter `name`, such as its momentum: of `elements`, which
  /// has as many elements as the parameter's piece. Not Collective.
  /// @throws ConfigError for a name that parameters() does not give
  TensorShard shard_of(const std::string& name, const at::Tensor& elements,
                       ShardCopies copies = ShardCopies::kAll) const;

  /// A tensor in the shape of `parameter`, of which this rank has `elements`, as many as its piece: whole, a
  /// copy, on every rank. Collective, blocking. @throws ConfigError for a parameter that is not sharded here
  at::Tensor gather_elements(const at::Tensor& parameter, const at::Tensor& elements) const;

  /// That of parameters() for the module's `parameter`, trained or not. Not Collective. @throws ConfigError
  /// for a parameter that is not sharded here
  const at::Tensor& piece_of(const at::Tensor& parameter) const;

  /// What a strategy has yet to multiply gradients by, for those who look at them. Not kept here; null: none.
  void set_pending_scales(std::weak_ptr<PendingScales> scales);
  /// What set_pending_scales() was given; null: none.
  std::shared_ptr<PendingScales> pending_scales() const;

  /// Before pieces are changed by others than the optimizer's step: forgets what is gathered. Not
  /// Collective.
  void forget_gathered();

  /// Where shards are offloaded to the CPU: blocks until the device has read what it was issued to read of
  /// them, so that they can be written. Else nothing. Not Collective.
  void await_device() const;

  /// Before pieces become those of another moment: forgets the errors of quantised gradients that later
  /// backwards would make good (LoCo). Not Collective.
  void forget_errors();

  /// Gathers all units at once, which then stay until forget_gathered() or a backward: for as long, a rank
  /// may use the module by itself. Needs memory for the whole model. Collective, blocking.
  void gather_all();

  /// Lets each of `parameters` that is sharded here lie whole in memory of its own until let_go() was called
  /// as often: operators and pointers read and write that, and shards stay as they are. What
  /// zero::GatheredParameters rests on. Collective, blocking.
  void hold(std::span<const at::Tensor> parameters);
  /// Shards take their parts of `parameters`, which are held and the same on all ranks. Not Collective.
  void keep_held(std::span<const at::Tensor> parameters);
  /// Not Collective.
  void let_go(std::span<const at::Tensor> parameters) noexcept;

  /// The name of `parameter`; empty if it is not sharded here. Not Collective.
  std::string name_of(const at::Tensor& parameter) const;

  /// Lets `optimizers`, of the parameters() of `before`, which has ended, go on with this engine: the tensors
  /// that they hold become its pieces, and state and gradients follow what each rank has of a parameter now.
  /// Masters keep the digits that the module's own type has no room for. Needs memory for the largest
  /// parameter. Collective, blocking.
  /// @throws ConfigError naming a parameter of an optimizer that is not sharded here, or state that cannot
  /// follow
  void take_over(const ShardedEngine& before, std::span<Optimizer* const> optimizers);

  /// Whether `module` has the parameters that were sharded, and they are trained or frozen as they were. Not
  /// Collective.
  bool still_holds(const torch::nn::Module& module) const;

  /// A buffer in the element type that it had before mixed precision. Not Collective.
  at::Tensor in_own_type(const at::Tensor& buffer) const;

  /// Gives the module's tensors memory and values of their own again, and ends. Collective, blocking.
  void restore();
  /// Whether restore() has ended it. Local.
  bool is_over() const;

  /// Local.
  ShardedStats stats() const;
  /// Into how many shards parameters are cut; as many ranks as hold a copy together. Local.
  int shards() const;
  /// Names of the units, the root's empty. Local.
  std::vector<std::string> unit_names() const;
  /// The ranks that share the model.
  const Communicator& communicator() const;
  /// Which parameters lie where.
  const ShardingPlan& plan() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
