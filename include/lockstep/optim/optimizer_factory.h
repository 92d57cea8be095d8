// How optimizers are asked for: options now, parameters later, because sharding decides which tensors an
// optimizer holds, and what it asks other ranks; and what a module's configure_optimizers() returns.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_options.h>
#include <lockstep/optim/scheduler_options.h>

namespace lockstep {

/// Pieces of a parameter are runs of its elements, in the order of ranks. They begin at multiples of
/// kGradNormBlock elements, so that sums over blocks of that many are those of the whole, and some are empty.
/// Ranks ask in the same order for the same parameters, which go by their names.
class LOCKSTEP_API PieceExchange {
 public:
  virtual ~PieceExchange();

  /// The shape of the whole. Not Collective. @throws ConfigError for a name that is not sharded here
  virtual std::vector<std::int64_t> shape_of(const std::string& parameter) const = 0;

  /// `mine` has a row for each block of kGradNormBlock elements of this rank's pieces of `parameters`, one
  /// piece after the other: [blocks, n], on the CPU or the parameters' device. Returns the rows of the whole
  /// parameters. Collective; blocking for tensors of the CPU.
  virtual at::Tensor join_blocks(std::span<const std::string> parameters, const at::Tensor& mine) = 0;

  /// A tensor in the shape of a parameter, of which this rank has `elements`, flat.
  struct Part {
    std::string parameter;  ///< dotted name
    at::Tensor elements;    ///< this rank's share, flat
    double cost = 1.0;      ///< of changing the whole; any unit
  };
  /// Replaces each of `parts`, all of one dtype, by what `change` makes of the whole: on one of the ranks,
  /// which gets the whole in its shape and gives the same number of elements. Each rank changes its share,
  /// one at a time. Collective, blocking.
  using Change = std::function<at::Tensor(const at::Tensor& whole)>;
  /// Changes `parts` by `change`, as Change says. Collective, blocking.
  virtual void change_whole(std::span<Part> parts, const Change& change) = 0;
};

/// Makes an Optimizer for parameters it is given. A value, converted from options (`AdamW{.lr = 3e-4}`) or
/// from any function that takes the parameters and returns an Optimizer.
class LOCKSTEP_API OptimizerFactory {
 public:
  /// Makes an optimizer of named parameters.
  using Function = std::function<std::unique_ptr<Optimizer>(std::vector<NamedParameter>)>;
  /// Of optimizers that look at whole tensors, of which ranks may have pieces.
  using PieceFunction =
      std::function<std::unique_ptr<Optimizer>(std::vector<NamedParameter>, std::shared_ptr<PieceExchange>)>;

  /// No optimizer.
  OptimizerFactory() = default;
  /// @throws ConfigError naming the field that is out of range
  OptimizerFactory(SGD options);
  /// @throws ConfigError naming the field that is out of range
  OptimizerFactory(Adam options);
  /// @throws ConfigError naming the field that is out of range
  OptimizerFactory(AdamW options);
  /// @throws ConfigError naming the field that is out of range
  OptimizerFactory(Adagrad options);
  /// @throws ConfigError naming the field that is out of range
  OptimizerFactory(Lion options);
  /// @throws ConfigError naming the field that is out of range
  OptimizerFactory(Lamb options);
  /// @throws ConfigError naming the field that is out of range
  OptimizerFactory(Muon options);
  /// @throws ConfigError naming the field that is out of range
  OptimizerFactory(LBFGS options);
  template <class F>
  requires std::constructible_from<Function, F> &&
      (!std::same_as<std::remove_cvref_t<F>, OptimizerFactory>)OptimizerFactory(F&& function)
      : create_(without_exchange(Function(std::forward<F>(function)))) {}
  template <class F>
  requires std::constructible_from<PieceFunction, F> &&
      (!std::constructible_from<Function, F>)OptimizerFactory(F&& function)
      : create_(std::forward<F>(function)) {}

  /// A new optimizer over `parameters`, which it shares with the caller; if they are pieces, `exchange` is
  /// for those that look at whole tensors.
  /// @throws ConfigError for parameters it cannot take, or a group's pattern that matches none of their names
  std::unique_ptr<Optimizer> create(std::vector<NamedParameter> parameters,
                                    std::shared_ptr<PieceExchange> exchange = nullptr) const;

  /// Whether there is one to create.
  explicit operator bool() const { return static_cast<bool>(create_); }

 private:
  static PieceFunction without_exchange(Function function);

  PieceFunction create_;
};

}  // namespace lockstep

namespace torch::nn {
class Module;
}

namespace lockstep {

/// An optimizer and, if wanted, what steps its learning rate:
/// `return {.optimizer = AdamW{.lr = 3e-4}, .lr_scheduler = LRScheduler{.scheduler = StepLR{.step_size =
/// 10}}};`
struct Optimizers {
  OptimizerFactory optimizer = {};               ///< what steps the parameters
  std::optional<LRScheduler> lr_scheduler = {};  ///< what changes its learning rate; none: nothing
  /// Whose parameters it trains: a part of the module, such as a GAN's generator. All of the module's where
  /// none is named. Of several optimizers name either every one's part or none's; parts share no parameter.
  std::shared_ptr<torch::nn::Module> module = {};
  /// Further ones, for manual optimisation: several_optimizers() fills it in.
  std::vector<Optimizers> others = {};
};

/// Several optimizers, numbered from 0:
///
///     return ls::several_optimizers({{.optimizer = ls::Adam{.lr = 2e-4}, .module = generator.ptr()},
///                                    {.optimizer = ls::Adam{.lr = 2e-4}, .module = discriminator.ptr()}});
LOCKSTEP_API Optimizers several_optimizers(std::vector<Optimizers> optimizers);

}  // namespace lockstep
