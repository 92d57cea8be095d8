// The values that torch.optim refuses, refused here by field and value.
#include <lockstep/optim/optimizer_options.h>

#include <cmath>

#include "optim/make_optimizer.h"
#include "optim/refuse.h"

namespace lockstep::detail {
namespace {

void require_not_negative(const std::string& field, double value) {
  require(std::isfinite(value) && value >= 0.0, field, value, "a finite number >= 0");
}

void validate_betas(const std::string& field, const std::array<double, 2>& betas) {
  for (std::size_t i = 0; i < betas.size(); ++i) {
    require(betas[i] >= 0.0 && betas[i] < 1.0, field + "[" + std::to_string(i) + "]", betas[i],
            "a number in [0, 1)");
  }
}

void validate_group(const std::string& owner, const ParameterGroup& group, bool has_momentum) {
  const auto field = owner + ".groups[\"" + group.pattern + "\"]";
  if (group.lr) require_not_negative(field + ".lr", *group.lr);
  if (group.weight_decay) require_not_negative(field + ".weight_decay", *group.weight_decay);
  if (group.momentum && !has_momentum)
    refuse(field + ".momentum is given", "no momentum: " + owner + " has none", "one");
  if (group.betas && has_momentum)
    refuse(field + ".betas is given", "no betas: " + owner + " has none", "some");
  if (group.momentum) require_not_negative(field + ".momentum", *group.momentum);
  if (group.betas) validate_betas(field + ".betas", *group.betas);
}

template <class Options>
void validate_adam(const std::string& name, const Options& options) {
  require_not_negative(name + ".lr", options.lr);
  validate_betas(name + ".betas", options.betas);
  require_not_negative(name + ".eps", options.eps);
  require_not_negative(name + ".weight_decay", options.weight_decay);
  for (const auto& group : options.groups) validate_group(name, group, /*has_momentum=*/false);
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
    validate_group("SGD", group, /*has_momentum=*/true);
    require_nesterov(options, group.momentum.value_or(options.momentum));
  }
}

void validate(const Adam& options) { validate_adam("Adam", options); }
void validate(const AdamW& options) { validate_adam("AdamW", options); }

}  // namespace lockstep::detail
