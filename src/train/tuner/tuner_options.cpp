#include <lockstep/train/tuner_options.h>

namespace lockstep {

std::span<const OptionName<BatchSizeMode>> option_names(BatchSizeMode) {
  static constexpr OptionName<BatchSizeMode> kNames[] = {{"power", BatchSizeMode::kPower},
                                                         {"binsearch", BatchSizeMode::kBinsearch}};
  return kNames;
}

std::span<const OptionName<LrFindMode>> option_names(LrFindMode) {
  static constexpr OptionName<LrFindMode> kNames[] = {{"exponential", LrFindMode::kExponential},
                                                      {"linear", LrFindMode::kLinear}};
  return kNames;
}

void describe(OptionVisitor& v, ScaleBatchSizeOptions& o) {
  v.field("mode", o.mode, "Double the size until it does not fit (power), or search on between (binsearch)");
  v.field("steps_per_trial", o.steps_per_trial, "Steps with each size", at_least(1));
  v.field("init_val", o.init_val, "Size to begin with", at_least(1));
  v.field("max_trials", o.max_trials, "Try at most so many sizes", at_least(0));
  v.field("margin", o.margin, "Share that binsearch takes off in the end", between(0, 0.9999));
  v.field("max_val", o.max_val, "Try no larger size", at_least(1));
}

void describe(OptionVisitor& v, LrFindOptions& o) {
  v.field("min_lr", o.min_lr, "First learning rate", more_than(0));
  v.field("max_lr", o.max_lr, "Last learning rate", more_than(0));
  v.field("num_training", o.num_training, "Steps from the first to the last", at_least(1));
  v.field("mode", o.mode, "Go up by equal factors (exponential) or differences (linear)");
  v.field("early_stop_threshold", o.early_stop_threshold,
          "Stop when the loss is worse than the best by this factor; null: never", more_than(0));
}

}  // namespace lockstep
