// Fabric: ranks, strategy, data and checkpoints for training loops of one's own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/comm/reduce_op.h>
#include <lockstep/data/loader.h>
#include <lockstep/fabric/fabric_loader.h>
#include <lockstep/fabric/fabric_options.h>
#include <lockstep/fabric/fabric_steps.h>
#include <lockstep/fabric/module_pointer.h>
#include <lockstep/fabric/state_ref.h>
#include <lockstep/loggers/logger.h>
#include <lockstep/optim/optimizer_factory.h>
#include <lockstep/precision/precision.h>
#include <lockstep/strategy/strategy.h>

namespace lockstep {

namespace detail {
struct FabricState;
}

/// How Fabric::clip_gradients() clips: exactly one of clip_val and max_norm.
struct ClipGradients {
  std::optional<double> clip_val = {};  ///< limit of each element, >= 0
  std::optional<double> max_norm = {};  ///< limit of the norm of all gradients together, >= 0
  double norm_type = 2.0;               ///< max_norm: p of the norm, > 0 or infinity
  bool error_if_nonfinite = true;       ///< max_norm: an error when the norm is infinite or NaN
};

/// By name of a state: which of its entries Fabric::save() writes.
using SaveFilter =
    std::map<std::string, std::function<bool(const std::string& entry, const StateValue& value)>>;

/// How Fabric::load() loads.
struct LoadOptions {
  /// An error when the checkpoint lacks a name, or a module's tensors are not those that were saved. When
  /// false, what is missing stays as it is, and a warning names tensors that only one side has.
  bool strict = true;
};

/// Lightning's Fabric for loops of one's own:
///
///     ls::Fabric fabric({.strategy = ls::Ddp{}, .devices = 2});
///     fabric.launch();
///     auto [model, optimizer] = fabric.setup(Net(), ls::AdamW{.lr = 3e-4});
///     auto batches = fabric.setup_loader(ls::loader(data, {.batch_size = 32, .shuffle = true}));
///     for (const auto& batch : batches) {
///       optimizer->zero_grad();
///       fabric.backward(F::cross_entropy(model->forward(batch.data), batch.target));
///       optimizer->step();
///     }
///
/// A model needs no wrapper: setup() gives back what it was given. Every rank makes the same calls in the
/// same order where they are Collective. Optimizers, loaders and scopes that it gave may outlive it. Not
/// thread-safe. Where a call fails, the error names it, and what was set up before can still be used.
class LOCKSTEP_API Fabric {
 public:
  /// Starts and connects nothing, unless the world has one rank.
  /// @throws ConfigError naming the option, its value and what is accepted
  explicit Fabric(FabricOptions options = {});
  /// Writes out what the loggers hold. Does not communicate.
  ~Fabric();
  Fabric(Fabric&&) noexcept;
  Fabric& operator=(Fabric&&) noexcept;

  /// Forms the group of ranks. Where several are asked for and nobody has started them (no ls::run, no
  /// launcher), this starts them by running the program anew, once per rank; this process becomes their
  /// supervisor and exits with their status. Does nothing when called again. Collective, blocking.
  /// @throws Timeout naming the ranks that are missing
  void launch();

  /// launch(), then `function(fabric)`. Returns what it returns, on every rank. Collective.
  template <std::invocable<Fabric&> Function>
  decltype(auto) launch(Function&& function) {
    launch();
    return std::invoke(std::forward<Function>(function), *this);
  }

  /// Prepares `model` for training under the strategy and gives it back: every rank has rank 0's weights now.
  /// Collective.
  /// @throws ConfigError before launch(), or when it, or one of its parameters, was set up before
  template <ModelHandle Model>
  Model setup_module(Model model) {
    set_up_module(detail::module_pointer(model));
    return model;
  }

  /// Takes `model` out again, so that it can be frozen, unfrozen, moved or converted; setup_module() then
  /// sets it up anew, and its optimizers go on with it. Gradients stay. Under a strategy that shards it is in
  /// its shards until it is changed or set up, and optimizers have what was trained when they were made. Not
  /// Collective, but all ranks do alike.
  /// @throws ConfigError when the model is not set up
  template <ModelHandle Model>
  void release(const Model& model) {
    release_module(*detail::module_pointer(model));
  }

  /// Creates optimizers for `model`, which setup_module() got before: `ls::AdamW{.lr = 3e-4}`, or a function
  /// from parameters to an Optimizer, which may leave some to others. One optimizer, or a tuple of them.
  /// Collective.
  /// @throws ConfigError when the model was not set up, or as OptimizerFactory::create
  template <ModelHandle Model, std::convertible_to<OptimizerFactory>... Factories>
  requires(sizeof...(Factories) > 0) auto setup_optimizers(const Model& model, Factories&&... factories) {
    const auto module = detail::module_pointer(model);
    if constexpr (sizeof...(Factories) == 1) {
      return set_up_optimizer(*module, std::forward<Factories>(factories)...);
    } else {
      return std::tuple{set_up_optimizer(*module, std::forward<Factories>(factories))...};
    }
  }

  /// As setup_module().
  template <ModelHandle Model>
  Model setup(Model model) {
    return setup_module(std::move(model));
  }

  /// setup_module() and setup_optimizers() in one: `auto [model, optimizer] = fabric.setup(Net(),
  /// ls::AdamW{});`. Works with every strategy. Collective.
  template <ModelHandle Model, std::convertible_to<OptimizerFactory>... Factories>
  requires(sizeof...(Factories) > 0) auto setup(Model model, Factories&&... factories) {
    setup_module(model);
    const auto module = detail::module_pointer(model);
    return std::tuple{std::move(model), set_up_optimizer(*module, std::forward<Factories>(factories))...};
  }

  /// This rank's part of a loader's data, on device(), with floating-point tensors in the type that the
  /// precision's models take (of batch types of your own: data/any_loader.h). Not Collective, but refuses bad
  /// data on all ranks alike.
  /// @throws ConfigError before launch(); DataError as check_shards()
  template <class Batch>
  FabricLoader<Batch> setup_loader(Loader<Batch> loader, const SetupLoaderOptions& options = {}) const {
    const auto shard = shard_for(loader.any(), options);
    if (loader.num_batches(shard) == kUnknownLength)
      loader = Loader<Batch>(ending_together(loader, options), loader.options());
    return FabricLoader<Batch>(std::move(loader), shard, input_conversion(options));
  }

  /// setup_loader() of several: `auto [train, val] = fabric.setup_dataloaders(a, b);`
  template <class... Batches>
  requires(sizeof...(Batches) > 1) auto setup_dataloaders(const Loader<Batches>&... loaders) const {
    return std::tuple{setup_loader(loaders)...};
  }

  /// Runs backward from `loss`; gradients are then the mean over ranks of what the ranks have accumulated.
  /// Collective.
  ///
  /// Whose gradients are averaged: those of `models`, if given; else those of every model that was set up and
  /// that the loss depends on. With one model that is the one; with several, the graph is searched for them,
  /// so naming them saves that and, where a loss passes through models that it is not to train (a GAN's
  /// discriminator, when the generator learns), what need not be sent. The gradients of other models add up
  /// locally. Gradients travel from those of the last model to those of the first, in the order of setup or
  /// of `models`, whatever order the graph has on a rank.
  /// @throws ConfigError when a model was not set up or was changed since, or the loss depends on none of
  /// `models` (of the one model, where there is but one rank, nobody looks); CommError naming parameters
  /// that got no gradient. After an error from one rank alone the ranks have parted for good.
  template <ModelHandle... Models>
  void backward(const at::Tensor& loss, const Models&... models) {
    run_backward(loss, {}, {std::shared_ptr<torch::nn::Module>(detail::module_pointer(models)).get()...});
  }
  /// The same with options.
  template <ModelHandle... Models>
  void backward(const at::Tensor& loss, const BackwardOptions& options, const Models&... models) {
    run_backward(loss, options,
                 {std::shared_ptr<torch::nn::Module>(detail::module_pointer(models)).get()...});
  }

  /// `step`, a function of a batch that trains on it and returns the loss, captured where FabricOptions has
  /// cuda_graphs and the device is none of the CPU; else called as it is:
  ///
  ///     auto step = fabric.capture<ls::Example>([&](const ls::Example& batch) {
  ///       optimizer->zero_grad();
  ///       const auto loss = F::cross_entropy(model->forward(batch.data), batch.target);
  ///       fabric.backward(loss);
  ///       optimizer->step();
  ///       return loss;
  ///     });
  ///     for (const auto& batch : batches) step(batch);
  ///
  /// captured_step.h says what holds in it. The first `warm_up` calls are not captured. The loss scale is
  /// adapted at the end of each call. Not Collective.
  /// @throws ConfigError before launch(), and for a `warm_up` below 1
  template <class Batch, std::invocable<const Batch&> Step>
  requires std::convertible_to<std::invoke_result_t<Step&, const Batch&>, at::Tensor> CapturedBatchStep<Batch>
  capture(Step step, int warm_up = 3)
  const {
    const auto around = around_step();
    auto whole_step = [adapt = around.before_step,
                       step = std::move(step)](const Batch& batch) mutable -> at::Tensor {
      at::Tensor loss = step(batch);
      adapt();
      return loss;
    };
    return CapturedBatchStep<Batch>(captured_device(), std::move(whole_step), warm_up, around);
  }

  /// While the scope lives and `enabled`, backward passes add up this model's gradients locally and send
  /// nothing; the first backward after it averages the sums. It need not enclose the forward pass. All ranks
  /// do alike. Not Collective.
  /// @throws ConfigError when the model was not set up
  template <ModelHandle Model>
  [[nodiscard]] NoBackwardSync no_backward_sync(const Model& model, bool enabled = true) {
    return NoBackwardSync(enabled ? known_module(*detail::module_pointer(model)) : nullptr);
  }

  /// What the precision asks of a forward pass, for as long as the scope lives; close it before backward:
  /// models are not wrapped, so a forward pass outside of it computes in float32. Not Collective.
  [[nodiscard]] ForwardScope autocast() const;

  /// A scope for the construction of models: `{ const auto scope = fabric.init_module(); net = Net(); }`.
  /// @throws ConfigError before launch()
  [[nodiscard]] InitScope init_module() const;

  /// Moves a model to device() in place, or gives a tensor or batch there; what is there already is not
  /// copied. setup() and the loaders of setup_loader() do so themselves.
  template <ModelHandle Model>
  Model to_device(Model model) const {
    detail::module_pointer(model)->to(device());
    return model;
  }
  /// The tensor on this rank's device; itself where it is there.
  at::Tensor to_device(const at::Tensor& tensor) const;
  /// The batch on this rank's device.
  Example to_device(const Example& batch) const;

  /// Clips the gradients of `optimizer`'s parameters, which are those of `model`; returns their norm before
  /// that, for max_norm. Under precision 16-mixed it unscales them first; where they have overflowed, the
  /// step will be left out, and a norm that is not finite is no error. A device is waited for where
  /// clip.error_if_nonfinite, or once somebody reads the norm. Collective: strategies may share the work.
  /// @throws ConfigError unless exactly one of clip_val and max_norm is given; Error for a norm that is not
  /// finite, before anything has changed
  template <ModelHandle Model>
  std::optional<Scalar> clip_gradients(const Model& model, const std::shared_ptr<FabricOptimizer>& optimizer,
                                       const ClipGradients& clip) {
    known_module(*detail::module_pointer(model));
    return clip_gradients_of(*optimizer, clip);
  }

  /// Returns the tensors of all ranks, by rank, with a new leading dimension of world_size(). All give the
  /// same shape and dtype. No gradients flow. Collective, blocking.
  at::Tensor all_gather(const at::Tensor& tensor) const;

  /// Returns the reduction of all ranks' tensors and leaves `tensor` as it was. kAvg is for floating point.
  /// No gradients flow. Collective, blocking.
  at::Tensor all_reduce(const at::Tensor& tensor, EnumOption<ReduceOp> op = ReduceOp::kAvg) const;
  /// The same for a number. *Collective.*
  double all_reduce(double value, EnumOption<ReduceOp> op = ReduceOp::kAvg) const;

  /// Returns rank `source`'s tensor, of any shape, or text; what other ranks give is ignored. Collective,
  /// blocking.
  at::Tensor broadcast(const at::Tensor& tensor, int source = 0) const;
  /// The text of rank `source`. *Collective.*
  std::string broadcast(const std::string& text, int source = 0) const;

  /// Returns when all ranks have called it. Collective, blocking.
  void barrier() const;

  /// Runs `function` on rank 0 first (`local`: on the first rank of each node), then on the others: to
  /// download or prepare data once. An error on rank 0 still lets the others begin. They wait no longer than
  /// for other collectives: raise the strategy's timeout if `function` takes long. Collective, blocking.
  void rank_zero_first(const std::function<void()>& function, bool local = false) const;

  /// Writes the states, by name, as a checkpoint: `fabric.save("last.ckpt", {{"model", model}, {"optimizer",
  /// optimizer}, {"epoch", epoch}})`. The folder is complete or the one that was there before. Python reads a
  /// model: safetensors.torch.load_file("last.ckpt/model.safetensors"). The state of the precision, such as
  /// the scale of 16-mixed, goes with an optimizer's. Collective, blocking.
  ///
  /// A filter leaves out entries of a model, optimizer, scheduler or StateTree: `{{"model", [](auto& name,
  /// auto&) { return name.starts_with("adapter."); }}}`.
  /// @throws IoError on every rank when rank 0 cannot write; ConfigError for a filter of what is not saved,
  /// or has no entries
  void save(const std::filesystem::path& folder, const NamedStates& states,
            const SaveFilter& filter = {}) const;

  /// Sets models, optimizers and variables to what save() wrote, in place, in the order given; returns what
  /// else the checkpoint holds. A checkpoint of DeepSpeed will do, too: see deepspeed_checkpoint.h. Every
  /// rank reads the folder. Collective in effect: all ranks must load alike.
  /// @throws IoError; CheckpointError naming the entry that is missing, damaged or of another model
  StateTree load(const std::filesystem::path& folder, const NamedStates& states = {},
                 const LoadOptions& options = {}) const;

  /// Loads a safetensors file, such as Python's safetensors.torch.save_file writes, into `model` in place. As
  /// load() else.
  template <ModelHandle Model>
  void load_raw(const std::filesystem::path& file, const Model& model) const {
    load_weights(file, *detail::module_pointer(model));
  }

  /// Seeds LibTorch's generators and the shuffling of loaders that are set up after it; returns `seed`.
  /// All ranks give the same seed: they then build the same model.
  std::uint64_t seed_everything(std::uint64_t seed);

  /// Prints a line on rank 0.
  void print(std::string_view text) const;

  /// Hands values to all loggers, on rank 0. `step` is one more than the last one's unless given.
  void log(std::string_view name, double value, std::optional<std::int64_t> step = {});
  /// Gives a value to the loggers of rank 0. Whoever reads one that is on a device waits for the device.
  void log(std::string_view name, const at::Tensor& value, std::optional<std::int64_t> step = {});
  /// Gives several values to the loggers of rank 0.
  void log_dict(const std::vector<Metric>& metrics, std::optional<std::int64_t> step = {});

  /// Calls a function of an interface on every callback that has the interface, in order:
  /// `fabric.call(&EpochHooks::on_epoch_end, epoch);`
  template <class Interface, class... Parameters, class... Arguments>
  void call(void (Interface::*hook)(Parameters...), const Arguments&... arguments) const {
    for (const auto& callback : callbacks()) {
      if (auto* const found = dynamic_cast<Interface*>(callback.get())) (found->*hook)(arguments...);
    }
  }

  /// The folder that ls::run() gave this run; empty outside of it.
  const std::filesystem::path& run_dir() const;
  /// The strategy. @throws ConfigError before launch()
  Strategy& strategy() const;
  /// The precision that forward and backward run under.
  Precision& precision() const;
  /// This rank's device.
  at::Device device() const;
  /// This rank on its node, from 0.
  int local_rank() const;
  /// This node, from 0.
  int node_rank() const;
  /// This rank, from 0.
  int global_rank() const;
  /// Ranks of the job.
  int world_size() const;
  /// Whether this is rank 0.
  bool is_global_zero() const { return global_rank() == 0; }
  /// The loggers that were given.
  const std::vector<std::shared_ptr<Logger>>& loggers() const;
  /// The callbacks that were given.
  const std::vector<std::shared_ptr<FabricCallback>>& callbacks() const;

 private:
  void set_up_module(const std::shared_ptr<torch::nn::Module>& module);
  void release_module(const torch::nn::Module& module);
  std::shared_ptr<FabricOptimizer> set_up_optimizer(torch::nn::Module& module,
                                                    const OptimizerFactory& factory);
  TensorChange input_conversion(const SetupLoaderOptions& options) const;
  at::Device captured_device() const;
  CapturedStep::Around around_step() const;
  ShardSpec shard_for(const AnyLoader& loader, const SetupLoaderOptions& options) const;
  std::shared_ptr<AnyLoader> ending_together(std::shared_ptr<AnyLoader> loader,
                                             const SetupLoaderOptions& options) const;
  void run_backward(const at::Tensor& loss, const BackwardOptions& options,
                    std::initializer_list<const torch::nn::Module*> models);
  std::shared_ptr<detail::TrainedModule> known_module(const torch::nn::Module& module) const;
  std::optional<Scalar> clip_gradients_of(FabricOptimizer& optimizer, const ClipGradients& clip);
  const Communicator& communicator() const;

  std::unique_ptr<detail::FabricState> state_;
};

}  // namespace lockstep
