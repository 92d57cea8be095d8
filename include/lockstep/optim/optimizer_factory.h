// How an optimizer is asked for: options now, parameters later, because sharding decides which tensors it
// holds.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/optim/optimizer_options.h>
#include <lockstep/optim/piece_exchange.h>

namespace lockstep {

/// Makes an Optimizer for parameters it is given. A value, converted from options (`AdamW{.lr = 3e-4}`) or
/// from any function that takes the parameters and returns an Optimizer.
class LOCKSTEP_API OptimizerFactory {
 public:
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
