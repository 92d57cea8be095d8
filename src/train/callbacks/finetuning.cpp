#include <algorithm>
#include <iomanip>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/train/callbacks/finetuning.h>
#include <lockstep/train/run_optimizer.h>

#include "train/callbacks/batch_norm_view.h"
#include "train/callbacks/refuse.h"

namespace lockstep {
namespace {

constexpr const char* kFinetuning = "finetuning";

bool is_batch_norm(torch::nn::Module& part) { return detail::batch_norm_view(part).has_value(); }

void set_requires_grad(torch::nn::Module& part, bool requires_grad) {
  for (auto& parameter : part.parameters(/*recurse=*/false)) parameter.set_requires_grad(requires_grad);
}

std::vector<std::string> trained_parameters(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& parameter : module.named_parameters())
    if (parameter.value().requires_grad()) names.push_back(parameter.key());
  return names;
}

bool has(const Optimizer& optimizer, const at::Tensor& parameter) {
  for (const auto& known : optimizer.parameters())
    if (known.tensor.is_same(parameter)) return true;
  return false;
}

// The parameters of `part` that require a gradient and have no group yet, by their names in `module`.
std::vector<NamedParameter> new_parameters(const AnyModule& module, const torch::nn::Module& part,
                                           const Optimizer& optimizer) {
  std::set<const at::TensorImpl*> wanted;
  for (const auto& parameter : part.parameters())
    if (parameter.requires_grad() && !has(optimizer, parameter))
      wanted.insert(parameter.unsafeGetTensorImpl());
  std::vector<NamedParameter> found;
  for (const auto& parameter : module.named_parameters())
    if (wanted.erase(parameter.value().unsafeGetTensorImpl()) > 0)
      found.push_back({parameter.key(), parameter.value()});
  return found;
}

// Has the strategy set up the module again, since it does not notice new parameters. Gradients of the last
// step may lie in its memory.
void set_up_again(const TrainContext& context) {
  context.optimizer().zero_grad();
  const auto& module = context.optimizers().front().module;
  context.strategy().release_module(*module);
  context.strategy().setup_module(module);
}

void add_saved_groups(Optimizer& optimizer, const torch::nn::Module& module, const StateTree& saved) {
  const auto parameters = module.named_parameters();
  const auto groups = saved.get_all<StateTree>("groups");
  for (std::size_t i = optimizer.groups().size(); i < groups.size(); ++i) {
    std::vector<NamedParameter> added;
    for (const auto& name : groups[i].get_all<std::string>("parameters")) {
      const auto* parameter = parameters.find(name);
      if (parameter == nullptr)
        throw CheckpointError("train", {.what = "finetuning: the checkpoint trains parameter " + name,
                                        .expected = "a parameter of the module",
                                        .got = "none of this name"});
      added.push_back({name, *parameter});
    }
    optimizer.add_param_group(std::move(added), groups[i].get<double>("lr"));
  }
}

}  // namespace

void BaseFinetuning::setup(TrainContext& context) {
  if (context.stage() != Stage::kFit) return;
  detail::refuse_sharded("BaseFinetuning", context);
  momenta_.clear();
  freeze_before_training(context.module());
}

void BaseFinetuning::teardown(TrainContext& context) {
  if (context.stage() == Stage::kFit) release_statistics(context.module());
}

void BaseFinetuning::on_train_epoch_start(TrainContext& context) {
  auto& module = context.module();
  const auto before = trained_parameters(module);
  finetune_function(context);
  if (trained_parameters(module) != before) set_up_again(context);
}

void BaseFinetuning::on_save_checkpoint(TrainContext& context, StateTree& shared) {
  StateList frozen_statistics;
  for (const auto& part : context.module().named_modules())
    if (momenta_.contains(part.value().get())) frozen_statistics.push_back(part.key());
  StateTree state;
  state.set("trained", StateList(trained_parameters(context.module())));
  state.set("frozen_statistics", std::move(frozen_statistics));
  shared.set(kFinetuning, std::move(state));
}

void BaseFinetuning::on_load_checkpoint(TrainContext& context, const StateTree& shared) {
  if (!shared.contains(kFinetuning)) return;
  auto& module = context.module();
  const auto before = trained_parameters(module);
  const auto& state = shared.get<StateTree>(kFinetuning);
  const auto names = state.get_all<std::string>("trained");
  const std::set<std::string> trained(names.begin(), names.end());
  for (auto& parameter : module.named_parameters())
    parameter.value().set_requires_grad(trained.contains(parameter.key()));
  const auto layers = state.get_all<std::string>("frozen_statistics");
  release_statistics(module);
  for (const auto& part : module.named_modules())
    if (std::ranges::count(layers, part.key()) > 0) freeze_statistics(*part.value());
  // With several optimizers no groups can have been added.
  if (context.optimizers().size() == 1)
    add_saved_groups(context.optimizer(), module, shared.get<StateTree>("optimizer"));
  if (trained_parameters(module) != before) set_up_again(context);
}

// As with PyTorch's track_running_stats = false the layer uses the statistics of each batch.
void BaseFinetuning::freeze_statistics(torch::nn::Module& part) {
  const auto layer = detail::batch_norm_view(part);
  if (!layer || momenta_.contains(&part)) return;
  momenta_.emplace(&part, layer->options->momentum());
  layer->options->momentum(0.0);
}

void BaseFinetuning::release_statistics(torch::nn::Module& part) {
  for (const auto& child : part.modules()) {
    const auto known = momenta_.find(child.get());
    if (known == momenta_.end()) continue;
    detail::batch_norm_view(*child)->options->momentum(known->second);
    momenta_.erase(known);
  }
}

void BaseFinetuning::freeze(torch::nn::Module& part, bool train_bn) {
  for (const auto& child : part.modules()) {
    if (is_batch_norm(*child) && train_bn) continue;
    set_requires_grad(*child, false);
    freeze_statistics(*child);
  }
}

void BaseFinetuning::make_trainable(torch::nn::Module& part, bool train_bn) {
  release_statistics(part);
  for (const auto& child : part.modules())
    if (train_bn || !is_batch_norm(*child)) set_requires_grad(*child, true);
}

bool BaseFinetuning::unfreeze_and_add_param_group(TrainContext& context, torch::nn::Module& part,
                                                  const UnfreezeOptions& options) {
  if (!(options.initial_denom_lr > 0))
    throw ConfigError("train", {.what = "finetuning: initial_denom_lr",
                                .expected = "> 0",
                                .got = std::to_string(options.initial_denom_lr)});
  make_trainable(part, options.train_bn);
  auto& optimizer = context.optimizer();
  auto parameters = new_parameters(context.module(), part, optimizer);
  if (parameters.empty()) return false;
  const auto lr = options.lr.value_or(optimizer.groups().front().lr / options.initial_denom_lr);
  optimizer.add_param_group(std::move(parameters), lr);
  return true;
}

namespace {

constexpr detail::Refusal refuse_finetuning{"BackboneFinetuning"};

}  // namespace

BackboneFinetuning::BackboneFinetuning(BackboneFinetuningOptions options) : options_(std::move(options)) {
  if (options_.unfreeze_backbone_at_epoch < 0)
    refuse_finetuning("unfreeze_backbone_at_epoch", ">= 0",
                      std::to_string(options_.unfreeze_backbone_at_epoch));
  if (!options_.lambda_func) refuse_finetuning("lambda_func", "a function of the epoch", "none");
  const auto lr = options_.backbone_initial_lr.value_or(options_.backbone_initial_ratio_lr);
  if (!(lr >= 0))
    refuse_finetuning(options_.backbone_initial_lr ? "backbone_initial_lr" : "backbone_initial_ratio_lr",
                      ">= 0", std::to_string(lr));
}

torch::nn::Module& BackboneFinetuning::backbone_of(AnyModule& module) const {
  if (options_.backbone) return options_.backbone(module);
  std::string names;
  for (const auto& child : module.named_children()) {
    if (child.key() == "backbone") return *child.value();
    names += (names.empty() ? "" : ", ") + child.key();
  }
  refuse_finetuning("the module has no backbone",
                    "a module registered as \"backbone\", or the option backbone",
                    names.empty() ? "no modules" : names);
}

void BackboneFinetuning::freeze_before_training(AnyModule& module) {
  previous_backbone_lr_.reset();
  freeze(backbone_of(module));
}

void BackboneFinetuning::finetune_function(TrainContext& context) {
  const auto epoch = context.current_epoch();
  const auto lr = context.optimizer().groups().front().lr;
  if (epoch == options_.unfreeze_backbone_at_epoch) {
    const auto backbone_lr = options_.backbone_initial_lr.value_or(lr * options_.backbone_initial_ratio_lr);
    const UnfreezeOptions unfreeze{.lr = backbone_lr, .train_bn = options_.train_bn};
    if (!unfreeze_and_add_param_group(context, backbone_of(context.module()), unfreeze)) return;
    previous_backbone_lr_ = backbone_lr;
    say_rates(context, lr, backbone_lr);
  } else if (previous_backbone_lr_) {
    const auto grown = options_.lambda_func(epoch + 1) * *previous_backbone_lr_;
    const auto backbone_lr = options_.should_align ? std::min(grown, lr) : grown;
    context.optimizer().groups().back().lr = backbone_lr;
    previous_backbone_lr_ = backbone_lr;
    say_rates(context, lr, backbone_lr);
  }
}

void BackboneFinetuning::say_rates(const TrainContext& context, double lr, double backbone_lr) const {
  if (!options_.verbose || !context.is_global_zero()) return;
  std::ostringstream text;
  text << std::fixed << std::setprecision(options_.rounding) << "Current lr: " << lr
       << ", Backbone lr: " << backbone_lr;
  log_info(text.str());
}

StateTree BackboneFinetuning::state() const {
  StateTree state;
  if (previous_backbone_lr_) state.set("previous_backbone_lr", *previous_backbone_lr_);
  return state;
}

void BackboneFinetuning::load_state(const StateTree& state) {
  if (state.contains("previous_backbone_lr"))
    previous_backbone_lr_ = state.get<double>("previous_backbone_lr");
}

void describe(OptionVisitor& v, BackboneFinetuningOptions& o) {
  v.field("unfreeze_backbone_at_epoch", o.unfreeze_backbone_at_epoch,
          "From this epoch on the backbone trains, too", at_least(0));
  v.field("backbone_initial_ratio_lr", o.backbone_initial_ratio_lr,
          "Its learning rate then, as a multiple of the first group's", at_least(0));
  v.field("backbone_initial_lr", o.backbone_initial_lr, "Its learning rate then, in place of that",
          at_least(0));
  v.field("should_align", o.should_align, "Its learning rate never exceeds the first group's");
  v.field("train_bn", o.train_bn, "Train its BatchNorm layers, once it is unfrozen");
  v.field("verbose", o.verbose, "Say the learning rates");
  v.field("rounding", o.rounding, "Digits behind the point of what is said", at_least(0));
}

}  // namespace lockstep
