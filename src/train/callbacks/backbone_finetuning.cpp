#include <algorithm>
#include <iomanip>
#include <sstream>

#include <lockstep/base/log.h>
#include <lockstep/train/callbacks/finetuning.h>

#include "train/callbacks/refuse.h"

namespace lockstep {
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

}  // namespace lockstep
