// The checks of optimizers' options, and OptimizerFactory, which makes optimizers from them.
#include <lockstep/optim/optimizer_factory.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

#include <lockstep/optim/optimizer_options.h>

#include "optim/make_optimizer.h"
#include "optim/pieces.h"

namespace lockstep::detail {

void refuse(std::string what, std::string expected, std::string got, std::string hint) {
  throw ConfigError("optim", {.what = std::move(what),
                              .expected = std::move(expected),
                              .got = std::move(got),
                              .where = "",
                              .hint = std::move(hint)});
}

void require(bool allowed, const std::string& field, double value, const std::string& expected) {
  if (allowed) return;
  std::ostringstream got;
  got << value;
  refuse(field + " is out of range", expected, got.str());
}

void require_not_negative(const std::string& field, double value) {
  require(std::isfinite(value) && value >= 0.0, field, value, "a finite number >= 0");
}

void require_share(const std::string& field, double value) {
  require(value >= 0.0 && value <= 1.0, field, value, "a number in [0, 1]");
}

std::string some_of(std::span<const std::string> names) {
  constexpr std::size_t kMost = 5;
  std::string text;
  for (const auto& name : names.first(std::min(kMost, names.size())))
    text += (text.empty() ? "" : ", ") + name;
  return names.size() <= kMost ? text : text + ", ... (" + std::to_string(names.size()) + ")";
}

namespace {

void validate_betas(const std::string& field, const std::array<double, 2>& betas) {
  for (std::size_t i = 0; i < betas.size(); ++i) {
    require(betas[i] >= 0.0 && betas[i] < 1.0, field + "[" + std::to_string(i) + "]", betas[i],
            "a number in [0, 1)");
  }
}

// The optional settings of a group that an optimizer has.
struct Has {
  bool momentum = false;
  bool betas = false;
};

void validate_group(const std::string& owner, const ParameterGroup& group, Has has) {
  const auto field = owner + ".groups[\"" + group.pattern + "\"]";
  if (group.lr) require_not_negative(field + ".lr", *group.lr);
  if (group.weight_decay) require_not_negative(field + ".weight_decay", *group.weight_decay);
  if (group.momentum && !has.momentum)
    refuse(field + ".momentum is given", "no momentum: " + owner + " has none", "one");
  if (group.betas && !has.betas)
    refuse(field + ".betas is given", "no betas: " + owner + " has none", "some");
  if (group.momentum) require_not_negative(field + ".momentum", *group.momentum);
  if (group.betas) validate_betas(field + ".betas", *group.betas);
}

// What Adam, AdamW and Lamb have in common.
template <class Options>
void validate_adam(const std::string& name, const Options& options) {
  require_not_negative(name + ".lr", options.lr);
  validate_betas(name + ".betas", options.betas);
  require_not_negative(name + ".eps", options.eps);
  require_not_negative(name + ".weight_decay", options.weight_decay);
  for (const auto& group : options.groups) validate_group(name, group, {.betas = true});
}

void require_nesterov(const SGD& options, double momentum) {
  if (!options.nesterov) return;
  require(momentum > 0.0, "SGD.momentum", momentum, "> 0, as nesterov needs it");
  require(options.dampening == 0.0, "SGD.dampening", options.dampening, "0, as nesterov needs it");
}

}  // namespace

void validate(const LBFGS& options) {
  require_not_negative("LBFGS.lr", options.lr);
  require(options.max_iter >= 1, "LBFGS.max_iter", options.max_iter, "an integer >= 1");
  require(options.max_eval.value_or(1) >= 1, "LBFGS.max_eval", options.max_eval.value_or(1),
          "an integer >= 1");
  require_not_negative("LBFGS.tolerance_grad", options.tolerance_grad);
  require_not_negative("LBFGS.tolerance_change", options.tolerance_change);
  require(options.history_size >= 1, "LBFGS.history_size", options.history_size, "an integer >= 1");
}

void validate(const SGD& options) {
  require_not_negative("SGD.lr", options.lr);
  require_not_negative("SGD.momentum", options.momentum);
  require(std::isfinite(options.dampening), "SGD.dampening", options.dampening, "a finite number");
  require_not_negative("SGD.weight_decay", options.weight_decay);
  require_nesterov(options, options.momentum);
  for (const auto& group : options.groups) {
    validate_group("SGD", group, {.momentum = true});
    require_nesterov(options, group.momentum.value_or(options.momentum));
  }
}

void validate(const Adam& options) { validate_adam("Adam", options); }
void validate(const AdamW& options) { validate_adam("AdamW", options); }

void validate(const Adagrad& options) {
  require_not_negative("Adagrad.lr", options.lr);
  require_not_negative("Adagrad.lr_decay", options.lr_decay);
  require_not_negative("Adagrad.weight_decay", options.weight_decay);
  require_not_negative("Adagrad.initial_accumulator_value", options.initial_accumulator_value);
  require_not_negative("Adagrad.eps", options.eps);
  for (const auto& group : options.groups) validate_group("Adagrad", group, {});
}

void validate(const Lion& options) {
  require_not_negative("Lion.lr", options.lr);
  validate_betas("Lion.betas", options.betas);
  require_not_negative("Lion.weight_decay", options.weight_decay);
  for (const auto& group : options.groups) validate_group("Lion", group, {.betas = true});
}

void validate(const Lamb& options) {
  validate_adam("Lamb", options);
  require_not_negative("Lamb.min_coeff", options.min_coeff);
  require(options.max_coeff >= options.min_coeff, "Lamb.max_coeff", options.max_coeff,
          "a number >= min_coeff");
}

void validate(const Muon& options) {
  require_not_negative("Muon.lr", options.lr);
  require_not_negative("Muon.weight_decay", options.weight_decay);
  require_share("Muon.momentum", options.momentum);
  for (const double coefficient : options.ns_coefficients)
    require(std::isfinite(coefficient), "Muon.ns_coefficients", coefficient, "finite numbers");
  require_not_negative("Muon.eps", options.eps);
  require(options.ns_steps >= 1 && options.ns_steps < 100, "Muon.ns_steps", options.ns_steps,
          "an integer from 1 to 99");
  require_not_negative("Muon.adam_lr", options.adam_lr);
  validate_betas("Muon.adam_betas", options.adam_betas);
  require_not_negative("Muon.adam_eps", options.adam_eps);
  for (const auto& group : options.groups) {
    validate_group("Muon", group, {.momentum = true, .betas = true});
    if (group.momentum) require_share("Muon.groups[\"" + group.pattern + "\"].momentum", *group.momentum);
  }
}

}  // namespace lockstep::detail

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

Optimizers several_optimizers(std::vector<Optimizers> optimizers) {
  if (optimizers.empty()) return {};
  auto first = std::move(optimizers.front());
  first.others.insert(first.others.end(), std::make_move_iterator(optimizers.begin() + 1),
                      std::make_move_iterator(optimizers.end()));
  return first;
}

}  // namespace lockstep
