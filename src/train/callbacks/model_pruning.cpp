#include <lockstep/train/callbacks/model_pruning.h>

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/module.h>

#include "device/step_recording.h"
#include "state/module_tensors.h"
#include "train/callbacks/named_options.h"
#include "train/callbacks/pruning_mask.h"
#include "train/callbacks/refuse.h"

namespace lockstep {
namespace {

constexpr const char* kPruning = "pruning";

constexpr detail::Refusal refuse_pruning{"ModelPruning"};

detail::PruningMethod method_of(const ModelPruningOptions& options) {
  const auto& name = options.pruning_fn;
  return {.is_random = name.starts_with("random"),
          .is_structured = name.ends_with("_structured"),
          .dim = options.pruning_dim.value_or(0),
          .norm = options.pruning_norm.value_or(1)};
}

void check_method(const ModelPruningOptions& options) {
  const std::vector<std::string> known{"l1_unstructured", "random_unstructured", "ln_structured",
                                       "random_structured"};
  const auto& name = options.pruning_fn;
  if (std::ranges::count(known, name) == 0)
    refuse_pruning("pruning_fn", "l1_unstructured, random_unstructured, ln_structured or random_structured",
                   "\"" + name + "\"", did_you_mean(nearest_name(name, known)));
  if (!method_of(options).is_structured) return;
  if (!options.pruning_dim) refuse_pruning(name, "the option pruning_dim", "none");
  if (name == "ln_structured" && !options.pruning_norm)
    refuse_pruning(name, "the option pruning_norm", "none");
  if (options.use_global_unstructured)
    refuse_pruning(name + " with use_global_unstructured",
                   "false: slices of different parameters do not compare", "true");
}

void check(const ModelPruningOptions& options) {
  check_method(options);
  if (const auto* share = std::get_if<double>(&options.amount); share && !(*share >= 0 && *share <= 1))
    refuse_pruning("amount", "a fraction in [0, 1], or an integer", std::to_string(*share));
  if (const auto* number = std::get_if<std::int64_t>(&options.amount); number && *number < 0)
    refuse_pruning("amount", ">= 0", std::to_string(*number));
  if (options.verbose < 0 || options.verbose > 2)
    refuse_pruning("verbose", "0, 1 or 2", std::to_string(options.verbose));
  if (options.parameter_names.empty() && options.parameters_to_prune.empty())
    refuse_pruning("parameter_names", "names of parameters, such as weight", "none");
}

bool is_on(const PruningSwitch& option, std::int64_t epoch) {
  if (const auto* always = std::get_if<bool>(&option)) return *always;
  return std::get<std::function<bool(std::int64_t)>>(option)(epoch);
}

bool may_be_on(const PruningSwitch& option) {
  const auto* always = std::get_if<bool>(&option);
  return always == nullptr || *always;
}

detail::Amount amount_at(const PruningAmount& option, std::int64_t epoch) {
  if (const auto* number = std::get_if<std::int64_t>(&option)) return *number;
  if (const auto* share = std::get_if<double>(&option)) return *share;
  return std::get<std::function<double(std::int64_t)>>(option)(epoch);
}

std::pair<std::string, std::string> split(const std::string& name) {
  const auto dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// One tensor under several names is pruned once.
std::vector<std::string> chosen_names(const torch::nn::Module& module, const ModelPruningOptions& options) {
  if (!options.parameters_to_prune.empty()) return options.parameters_to_prune;
  std::vector<std::string> names;
  std::vector<at::Tensor> seen;
  for (const auto& item : module.named_parameters()) {
    const bool is_wanted = std::ranges::count(options.parameter_names, split(item.key()).second) > 0;
    const bool is_new = std::ranges::none_of(seen, [&](const auto& t) { return t.is_same(item.value()); });
    if (!is_wanted || !is_new) continue;
    names.push_back(item.key());
    seen.push_back(item.value());
  }
  return names;
}

at::Tensor parameter_of(const torch::nn::Module& module, const std::string& name) {
  const auto parameters = module.named_parameters();
  if (const auto* found = parameters.find(name)) return *found;
  refuse_pruning("parameters_to_prune", "names of the module's parameters", "\"" + name + "\"",
                 did_you_mean(nearest_name(name, parameters.keys())));
}

std::string percent(std::int64_t pruned, std::int64_t all) {
  std::ostringstream text;
  text << pruned << "/" << all << " (" << std::fixed << std::setprecision(2)
       << 100.0 * static_cast<double>(pruned) / static_cast<double>(all) << "%)";
  return text.str();
}

std::int64_t sum(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

ModelPruning::ModelPruning(ModelPruningOptions options) : options_(std::move(options)) { check(options_); }

std::vector<std::pair<std::string, at::Tensor>> ModelPruning::masks() const {
  std::vector<std::pair<std::string, at::Tensor>> masks;
  for (const auto& parameter : parameters_) masks.emplace_back(parameter.name, parameter.mask);
  return masks;
}

std::vector<std::int64_t> ModelPruning::pruned_counts() const {
  std::vector<std::int64_t> counts;
  for (const auto& parameter : parameters_)
    counts.push_back(parameter.mask.numel() - parameter.mask.count_nonzero().item<std::int64_t>());
  return counts;
}

double ModelPruning::sparsity() const {
  std::int64_t all = 0;
  for (const auto& parameter : parameters_) all += parameter.mask.numel();
  return all == 0 ? 0 : static_cast<double>(sum(pruned_counts())) / static_cast<double>(all);
}

void ModelPruning::setup(TrainContext& context) {
  if (context.stage() != Stage::kFit) return;
  detail::refuse_sharded("ModelPruning", context);
  if (options_.make_pruning_permanent) parameters_.clear();
  masked_step_ = 0;
}

// Masks and original weights from a checkpoint or an earlier fit are used again.
void ModelPruning::find_parameters(const AnyModule& module) {
  const bool wants_originals =
      may_be_on(options_.use_lottery_ticket_hypothesis) && !options_.resample_parameters;
  std::vector<Pruned> found;
  for (const auto& name : filter_parameters_to_prune(chosen_names(module, options_))) {
    const auto weight = parameter_of(module, name);
    Pruned pruned{.name = name, .weight = weight, .mask = torch::ones_like(weight.detach()), .original = {}};
    if (wants_originals) pruned.original = weight.detach().clone();
    const auto known = std::ranges::find(parameters_, name, &Pruned::name);
    if (known != parameters_.end() && known->mask.sizes() == weight.sizes()) {
      pruned.mask = known->mask;
      pruned.original = known->original;
    }
    found.push_back(std::move(pruned));
  }
  if (found.empty()) refuse_pruning("the module", "a parameter that can be pruned", "none");
  parameters_ = std::move(found);
}

void ModelPruning::on_fit_start(TrainContext& context) {
  find_parameters(context.module());
  apply_masks();
}

void ModelPruning::on_fit_end(TrainContext&) {
  if (options_.make_pruning_permanent) parameters_.clear();
}

void ModelPruning::on_before_optimizer_step(StepContext&) {
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : parameters_)
    if (auto& gradient = parameter.weight.mutable_grad(); gradient.defined()) gradient.mul_(parameter.mask);
}

// Weight decay and momentum change weights whose gradient is 0, so the mask is applied again.
void ModelPruning::on_train_batch_end(StepContext& step, const TrainOutput&) {
  if (step.global_step() == masked_step_) return;
  masked_step_ = step.global_step();
  apply_masks();
}

void ModelPruning::apply_masks() const {
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : parameters_) at::Tensor(parameter.weight).mul_(parameter.mask);
}

void ModelPruning::on_train_epoch_end(TrainContext& context) {
  if (options_.prune_on_train_epoch_end) prune_if_due(context);
}

// Runs after callbacks that average weights have restored the weights of training.
void ModelPruning::on_validation_end(TrainContext& context) {
  if (!options_.prune_on_train_epoch_end && context.stage() == Stage::kFit) prune_if_due(context);
}

void ModelPruning::prune_if_due(const TrainContext& context) {
  const auto epoch = context.current_epoch();
  const auto amount = amount_at(options_.amount, epoch);
  const bool is_zero = std::visit([](auto value) { return value == 0; }, amount);
  if (is_zero || !is_on(options_.apply_pruning, epoch)) return;
  prune(context, amount);
  if (is_on(options_.use_lottery_ticket_hypothesis, epoch)) reset_to_originals(context);
  apply_masks();
}

std::vector<at::Tensor> ModelPruning::next_masks(const detail::Amount& amount) const {
  const auto method = method_of(options_);
  std::vector<at::Tensor> weights, masks, next;
  for (const auto& parameter : parameters_) {
    weights.push_back(parameter.weight.detach());
    masks.push_back(parameter.mask);
  }
  if (!options_.use_global_unstructured) {
    for (std::size_t i = 0; i < masks.size(); ++i)
      next.push_back(detail::pruned_mask(method, weights[i], masks[i], amount));
    return next;
  }
  const auto flat = [](std::vector<at::Tensor> tensors) {
    for (auto& tensor : tensors) tensor = tensor.flatten();
    return torch::cat(tensors);
  };
  const auto all = detail::pruned_mask(method, flat(weights), flat(masks), amount);
  std::int64_t begin = 0;
  for (const auto& mask : masks) {
    next.push_back(all.narrow(0, begin, mask.numel()).view(mask.sizes()).to(mask.scalar_type()));
    begin += mask.numel();
  }
  return next;
}

// Ranks may have drawn different random numbers: all use rank 0's.
void ModelPruning::prune(const TrainContext& context, const detail::Amount& amount) {
  const auto before = pruned_counts();
  const auto masks = next_masks(amount);
  detail::outdate_recordings();  // they multiply by the masks of before
  for (std::size_t i = 0; i < masks.size(); ++i) {
    parameters_[i].mask = masks[i].clone();
    context.strategy().communicator().broadcast(parameters_[i].mask, 0);
  }
  report(context, before);
}

void ModelPruning::reset_to_originals(const TrainContext& context) const {
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : parameters_) {
    auto original = parameter.original;
    if (options_.resample_parameters) {
      const auto [path, name] = split(parameter.name);
      const auto modules = context.module().named_modules();
      if (const auto* layer = modules.find(path)) original = detail::redrawn(**layer, name);
      if (original.defined()) context.strategy().communicator().broadcast(original, 0);
    }
    if (original.defined()) at::Tensor(parameter.weight).copy_(original);
  }
}

void ModelPruning::report(const TrainContext& context, const std::vector<std::int64_t>& before) const {
  if (options_.verbose == 0 || !context.is_global_zero()) return;
  const auto after = pruned_counts();
  std::int64_t all = 0;
  for (const auto& parameter : parameters_) all += parameter.mask.numel();
  log_info("Applied " + options_.pruning_fn + ". Pruned: " + percent(sum(before), all) + " -> " +
           percent(sum(after), all));
  if (options_.verbose < 2) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto size = parameters_[i].mask.numel();
    log_info("Applied " + options_.pruning_fn + " to " + parameters_[i].name +
             ". Pruned: " + percent(before[i], size) + " -> " + percent(after[i], size));
  }
}

void ModelPruning::on_save_checkpoint(TrainContext&, StateTree& shared) {
  if (!shared.contains("loops")) return;
  StateTree masks, originals, state;
  for (const auto& parameter : parameters_) {
    masks.set(parameter.name, parameter.mask);
    if (parameter.original.defined()) originals.set(parameter.name, parameter.original);
  }
  state.set("masks", std::move(masks));
  state.set("originals", std::move(originals));
  shared.set(kPruning, std::move(state));
}

void ModelPruning::on_load_checkpoint(TrainContext& context, const StateTree& shared) {
  if (!shared.contains(kPruning)) return;
  find_parameters(context.module());
  const auto& masks = shared.get<StateTree>(kPruning).get<StateTree>("masks");
  const auto& originals = shared.get<StateTree>(kPruning).get<StateTree>("originals");
  for (auto& parameter : parameters_) {
    if (masks.contains(parameter.name)) detail::copy_as_loaded(masks, parameter.name, parameter.mask);
    if (parameter.original.defined() && originals.contains(parameter.name))
      detail::copy_as_loaded(originals, parameter.name, parameter.original);
  }
}

// Without the functions that code may give.
template <>
struct OptionType<PruningAmount> {
  using Number = std::variant<std::int64_t, double>;
  static Expected<PruningAmount> parse(std::string_view text) {
    const auto number = OptionType<Number>::parse(text);
    if (!number) return Unexpected{number.error()};
    return std::visit([](auto value) { return PruningAmount(value); }, *number);
  }
  static std::string print(const PruningAmount& value) {
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return OptionType<Number>::print(*whole);
    const auto* fraction = std::get_if<double>(&value);
    return fraction != nullptr ? OptionType<Number>::print(*fraction) : "a function";
  }
  static std::string accepted() { return OptionType<Number>::accepted(); }
  static std::string type() { return OptionType<Number>::type(); }
};

template <>
struct OptionType<PruningSwitch> {
  static Expected<PruningSwitch> parse(std::string_view text) {
    const auto is_on = OptionType<bool>::parse(text);
    if (!is_on) return Unexpected{is_on.error()};
    return PruningSwitch(*is_on);
  }
  static std::string print(const PruningSwitch& value) {
    const auto* is_on = std::get_if<bool>(&value);
    return is_on != nullptr ? OptionType<bool>::print(*is_on) : "a function";
  }
  static std::string accepted() { return OptionType<bool>::accepted(); }
  static std::string type() { return OptionType<bool>::type(); }
};

void describe(OptionVisitor& v, ModelPruningOptions& o) {
  v.field("pruning_fn", o.pruning_fn, "Which weights are pruned first, one by one or in slices; required",
          one_of({"l1_unstructured", "random_unstructured", "ln_structured", "random_structured"}));
  v.field("parameters_to_prune", o.parameters_to_prune,
          "Full names such as net.0.weight; empty: all that are called as in parameter_names");
  v.field("parameter_names", o.parameter_names, "Names of parameters within modules");
  v.field("use_global_unstructured", o.use_global_unstructured,
          "Compare the weights of all parameters; false: of each on its own");
  v.field("amount", o.amount, "How much is pruned at a time: a number of weights, or a fraction (0.2)");
  v.field("apply_pruning", o.apply_pruning, "Whether anything is pruned");
  v.field("make_pruning_permanent", o.make_pruning_permanent,
          "Forget after fit what was pruned; false: another fit keeps it pruned");
  v.field("use_lottery_ticket_hypothesis", o.use_lottery_ticket_hypothesis,
          "Set what is left to what it was before training");
  v.field("resample_parameters", o.resample_parameters, "Set what is left to new random values instead");
  v.field("pruning_dim", o.pruning_dim, "Dimension whose slices are pruned, of structured methods");
  v.field("pruning_norm", o.pruning_norm, "Norm by which slices are compared, of ln_structured");
  v.field("verbose", o.verbose, "1: say how much is pruned; 2: of each parameter, too", between(0, 2));
  v.field("prune_on_train_epoch_end", o.prune_on_train_epoch_end,
          "Prune at the end of each training epoch; false: of each validation");
}

}  // namespace lockstep
