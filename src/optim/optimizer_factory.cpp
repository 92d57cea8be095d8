#include <lockstep/optim/optimizer_factory.h>

#include <algorithm>
#include <string>
#include <utility>

#include <lockstep/optim/piece_exchange.h>

#include "optim/make_optimizer.h"
#include "optim/pieces.h"
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

// Of pieces it would make something else, and nobody would notice.
void refuse_pieces(const Optimizer& optimizer) {
  const auto& all = optimizer.parameters();
  const auto found =
      std::ranges::find_if(all, [](const auto& each) { return detail::is_piece(each.tensor); });
  if (found == all.end()) return;
  detail::refuse(std::string(optimizer.name()) + " looks at whole tensors, and parameters are sharded",
                 "one that takes pieces, as AdamW does, and Lamb and Muon with what they ask other ranks by: "
                 "create(sharded->parameters(), sharded->exchange())",
                 "a piece of " + found->name);
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
  if (!optimizer->takes_pieces()) refuse_pieces(*optimizer);
  return optimizer;
}

PieceExchange::~PieceExchange() = default;

}  // namespace lockstep
