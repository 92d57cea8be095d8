#include <lockstep/optim/optimizer.h>

#include <lockstep/base/error.h>

#include <map>
#include <unordered_map>
#include <utility>

#include "optim/make_optimizer.h"
#include "state/module_tensors.h"

namespace lockstep {
namespace {

bool is_trainable(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}

void check_tensor(const NamedParameter& parameter) {
  const auto& tensor = parameter.tensor;
  const auto what = "parameter " + parameter.name + " cannot be optimized";
  if (!tensor.defined()) detail::refuse(what, "a tensor", "an undefined one");
  if (tensor.layout() != at::kStrided) detail::refuse(what, "a dense tensor", c10::str(tensor.layout()));
  if (!is_trainable(tensor.scalar_type()))
    detail::refuse(what, "float64, float32, float16 or bfloat16", c10::str(tensor.scalar_type()));
  if (detail::has_shared_elements(tensor))
    detail::refuse(what, "elements that lie apart",
                   c10::str("sizes ", tensor.sizes(), " with strides ", tensor.strides(),
                            ", by which several elements share memory"),
                   "register a contiguous() copy of it");
}

void check_parameters(const std::vector<NamedParameter>& parameters) {
  if (parameters.empty()) detail::refuse("there is nothing to optimize", "at least one parameter", "none");
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  std::unordered_map<std::string, int> count;
  for (const auto& parameter : parameters) {
    check_tensor(parameter);
    if (++count[parameter.name] > 1) {
      detail::refuse("two parameters have one name", "unique names", parameter.name + " twice");
    }
    const auto [first, is_new] = names.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter.name);
    if (!is_new) {
      detail::refuse("a parameter is given twice", "each tensor once",
                     parameter.name + ", which is the same tensor as " + first->second);
    }
  }
}

[[noreturn]] void refuse_state(const std::string& entry, std::string expected, std::string got) {
  throw CheckpointError("optim", {.what = "optimizer state " + entry + " does not fit",
                                  .expected = std::move(expected),
                                  .got = std::move(got),
                                  .where = "",
                                  .hint = "load state that was saved for the same model and optimizer"});
}

std::string entry_name(const OptimizerState& entry) { return entry.kind + " of " + entry.parameter; }

using StateByName = std::map<std::pair<std::string, std::string>, at::Tensor>;

StateByName by_name(std::span<const OptimizerState> entries) {
  StateByName result;
  for (const auto& entry : entries) {
    if (!result.emplace(std::pair(entry.parameter, entry.kind), entry.tensor).second) {
      refuse_state(entry_name(entry), "one entry", "two");
    }
  }
  return result;
}

void check_fits(const OptimizerState& own, const StateByName& saved) {
  const auto found = saved.find({own.parameter, own.kind});
  if (found == saved.end()) refuse_state(entry_name(own), "an entry", "none");
  if (!found->second.defined() || found->second.sizes() != own.tensor.sizes()) {
    refuse_state(entry_name(own), "shape " + c10::str(own.tensor.sizes()),
                 found->second.defined() ? c10::str(found->second.sizes()) : "an undefined tensor");
  }
}

void check_all_known(const StateByName& saved, const StateByName& own) {
  for (const auto& [name, tensor] : saved) {
    if (!own.contains(name)) refuse_state(name.second + " of " + name.first, "no such entry", "one");
  }
}

}  // namespace

Optimizer::Optimizer(std::vector<NamedParameter> parameters, std::vector<Group> groups)
    : parameters_(std::move(parameters)), groups_(std::move(groups)) {
  check_parameters(parameters_);
}

Optimizer::~Optimizer() = default;

void Optimizer::prepare_state(std::span<const OptimizerState>) {}

bool Optimizer::leave_out_next_step_if(const at::Tensor& /*found_inf*/) { return false; }

void Optimizer::swap_state(const StateSwap&) {
  throw ConfigError("optim", {.what = std::string(name()) + " with its state on disk",
                              .expected = "any of lockstep's optimizers but LBFGS",
                              .got = std::string(name())});
}

void Optimizer::adopt_parameters(std::size_t) {
  detail::refuse("another group of parameters", "an optimizer that takes it", std::string(name()));
}

Optimizer::Group& Optimizer::add_param_group(std::vector<NamedParameter> parameters, double lr) {
  if (parameters.empty()) detail::refuse("a group of no parameters", "at least one parameter", "none");
  Group group = groups_.front();
  group.pattern.clear();
  group.parameters.clear();
  for (const auto& parameter : parameters) group.parameters.push_back(parameter.name);
  group.lr = group.initial_lr = lr;
  auto all = parameters_;
  all.insert(all.end(), parameters.begin(), parameters.end());
  check_parameters(all);
  const auto first = parameters_.size();
  std::swap(parameters_, all);
  groups_.push_back(std::move(group));
  try {
    adopt_parameters(first);
  } catch (...) {
    groups_.pop_back();
    std::swap(parameters_, all);
    throw;
  }
  return groups_.back();
}

void Optimizer::load_state(std::span<const OptimizerState> saved) {
  const auto source = by_name(saved);
  prepare_state(saved);
  const auto own = state();
  for (const auto& entry : own) check_fits(entry, source);
  check_all_known(source, by_name(own));
  at::NoGradGuard no_grad;
  for (const auto& entry : own) entry.tensor.copy_(source.at({entry.parameter, entry.kind}));
}

double Optimizer::step_with(const Closure& closure) {
  const double loss = closure();
  step();
  return loss;
}

void Optimizer::zero_grad(bool set_to_none) {
  if (on_zero_grad_) on_zero_grad_();
  for (auto& parameter : parameters_) {
    auto& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) continue;
    if (set_to_none) {
      gradient.reset();
    } else {
      at::NoGradGuard no_grad;
      gradient.zero_();
    }
  }
}

}  // namespace lockstep
