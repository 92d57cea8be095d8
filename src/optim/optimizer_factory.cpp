#include <lockstep/optim/optimizer_factory.h>

#include <utility>

#include "optim/make_optimizer.h"
#include "optim/refuse.h"

namespace lockstep {
namespace {

template <class Options>
OptimizerFactory::PieceFunction maker(Options options) {
  detail::validate(options);
  return [options = std::move(options)](std::vector<NamedParameter> parameters,
                                        std::shared_ptr<PieceExchange> exchange) {
    if constexpr (requires { detail::make_optimizer(options, std::move(parameters), std::move(exchange)); }) {
      return detail::make_optimizer(options, std::move(parameters), std::move(exchange));
    } else {
      return detail::make_optimizer(options, std::move(parameters));
    }
  };
}

}  // namespace

OptimizerFactory::OptimizerFactory(SGD options) : create_(maker(std::move(options))) {}
OptimizerFactory::OptimizerFactory(Adam options) : create_(maker(std::move(options))) {}
OptimizerFactory::OptimizerFactory(AdamW options) : create_(maker(std::move(options))) {}
OptimizerFactory::OptimizerFactory(Adagrad options) : create_(maker(std::move(options))) {}
OptimizerFactory::OptimizerFactory(Lion options) : create_(maker(std::move(options))) {}
OptimizerFactory::OptimizerFactory(Lamb options) : create_(maker(std::move(options))) {}
OptimizerFactory::OptimizerFactory(Muon options) : create_(maker(std::move(options))) {}
OptimizerFactory::OptimizerFactory(LBFGS options) : create_(maker(std::move(options))) {}

// Nothing comes of nothing.
OptimizerFactory::PieceFunction OptimizerFactory::without_exchange(Function function) {
  if (!function) return {};
  return [function = std::move(function)](std::vector<NamedParameter> parameters,
                                          const std::shared_ptr<PieceExchange>&) {
    return function(std::move(parameters));
  };
}

std::unique_ptr<Optimizer> OptimizerFactory::create(std::vector<NamedParameter> parameters,
                                                    std::shared_ptr<PieceExchange> exchange) const {
  if (!create_)
    detail::refuse("there is no optimizer to create",
                   "SGD, Adam, AdamW, Adagrad, Lion, Lamb, Muon, LBFGS or a function", "an empty factory");
  auto optimizer = create_(std::move(parameters), std::move(exchange));
  if (!optimizer)
    detail::refuse("there is no optimizer", "one from the factory's function", "a null pointer");
  return optimizer;
}

}  // namespace lockstep
