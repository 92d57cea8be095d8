#include <lockstep/optim/optimizer_factory.h>

#include <utility>

#include "optim/make_optimizer.h"
#include "optim/refuse.h"

namespace lockstep {
namespace {

template <class Options>
OptimizerFactory::Function maker(Options options) {
  detail::validate(options);
  return [options = std::move(options)](std::vector<NamedParameter> parameters) {
    return detail::make_optimizer(options, std::move(parameters));
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

std::unique_ptr<Optimizer> OptimizerFactory::create(std::vector<NamedParameter> parameters) const {
  if (!create_)
    detail::refuse("there is no optimizer to create",
                   "SGD, Adam, AdamW, Adagrad, Lion, Lamb, Muon, LBFGS or a function", "an empty factory");
  auto optimizer = create_(std::move(parameters));
  if (!optimizer)
    detail::refuse("there is no optimizer", "one from the factory's function", "a null pointer");
  return optimizer;
}

}  // namespace lockstep
