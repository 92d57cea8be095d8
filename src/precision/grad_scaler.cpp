#include <lockstep/precision/grad_scaler.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/all.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <lockstep/base/error.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/optim/optimizer.h>

#include "device/step_recording.h"

namespace lockstep {
namespace {

// What is wrong with them, if anything.
std::optional<ErrorParts> problem_of(const GradScalerOptions& o) {
  const auto problem = [](const std::string& field, const std::string& expected, double got) {
    return ErrorParts{.what = "GradScaler: " + field + " is out of range",
                      .expected = expected,
                      .got = std::to_string(got)};
  };
  if (!(o.init_scale > 0)) return problem("init_scale", "> 0", o.init_scale);
  if (!(o.growth_factor > 1)) return problem("growth_factor", "> 1", o.growth_factor);
  if (!(o.backoff_factor > 0 && o.backoff_factor < 1))
    return problem("backoff_factor", "between 0 and 1", o.backoff_factor);
  if (o.hysteresis < 1) return problem("hysteresis", "> 0", o.hysteresis);
  if (o.growth_delay < 0) return problem("growth_delay", ">= 0", static_cast<double>(o.growth_delay));
  if (!(o.min_scale >= 0)) return problem("min_scale", ">= 0", o.min_scale);
  if (o.growth_interval < 1) return problem("growth_interval", "> 0", static_cast<double>(o.growth_interval));
  return std::nullopt;
}

[[noreturn]] void refuse(std::string what, std::string hint = {}) {
  throw Error("precision", {.what = "GradScaler: " + std::move(what), .hint = std::move(hint)});
}

bool is_finite(const at::Tensor& gradient) {
  if (gradient.scalar_type() == at::kDouble) return at::isfinite(gradient).all().item<bool>();
  // Squares of float32 do not overflow in float64.
  return std::isfinite(pairwise_sum(block_square_sums(gradient)));
}

// What a scaler counts beside its scale. torch's has the first alone.
enum Count : std::int64_t {
  kGrowth,      // updates in a row without an overflow
  kHysteresis,  // overflows until the scale backs off
  kUnusable,    // updates since a gradient overflowed at the least scale, with that one; 0: none has
  kCounts
};

bool may_fail(const GradScalerOptions& options) {
  return options.dynamic && options.fails_at_min_scale && options.min_scale > 0;
}

// Gradients that are only looked at may be stepped with again, as where nobody looks.
bool leaves_gradients_alone(const GradScalerOptions& options) {
  return !options.dynamic && options.init_scale == 1;
}

// The host reads whether the least scale was too much, and gives the error once: who saves what there is
// afterwards is not told again.
void require_usable(const GradScalerOptions& options, const at::Tensor& scale, const at::Tensor& counts,
                    std::int64_t steps) {
  if (!may_fail(options) || !counts.defined()) return;
  const auto unusable = counts[kUnusable];
  const auto since = unusable.item<std::int64_t>();
  if (since == 0) return;
  unusable.zero_();
  refuse("a gradient overflowed in step " + std::to_string(steps - since + 1) + ", and the scale is " +
             std::to_string(scale.item<double>()) + ", its minimum, already",
         "look for what is infinite or NaN in the model or the data; min_scale sets the minimum");
}

// DeepSpeed's rule, written once: with numbers of the host, or with tensors of a device, which then decides
// by itself, and captured steps repeat it.
template <class Number>
struct LossScale {
  Number scale;  // in float64: products are rounded once, where they are stored
  Number growth, hysteresis, unusable;
};

double pick(bool flag, double yes, double no) { return flag ? yes : no; }
template <class Yes, class No>
at::Tensor pick(const at::Tensor& flag, const Yes& yes, const No& no) {
  return at::where(flag, yes, no);
}

double at_least(double number, double least) { return std::max(number, least); }
at::Tensor at_least(const at::Tensor& number, double least) { return number.clamp_min(least); }

// What a step without an overflow makes of them: torch's rule.
LossScale<double> grown(const GradScalerOptions& options, LossScale<double> now) {
  if (++now.growth != static_cast<double>(options.growth_interval)) return now;
  const auto scale = static_cast<float>(now.scale * options.growth_factor);
  now.growth = 0;
  if (std::isfinite(scale)) now.scale = scale;
  return now;
}

LossScale<at::Tensor> grown(const GradScalerOptions& options, LossScale<at::Tensor> now) {
  auto scale = now.scale.to(at::kFloat), growth = now.growth.clone();
  at::_amp_update_scale_(scale, growth, at::zeros_like(scale), options.growth_factor, options.backoff_factor,
                         options.growth_interval);
  now.scale = scale.to(at::kDouble);
  now.growth = growth;
  return now;
}

template <class Number, class Flag>
LossScale<Number> adapted(const GradScalerOptions& options, const LossScale<Number>& now,
                          const Flag& overflows) {
  const Flag is_out_of_patience = now.hysteresis <= 1;
  auto next = grown(options, now);
  const Flag is_refilled = (next.scale != now.scale) | options.consecutive_hysteresis;
  next.hysteresis =
      pick(overflows, at_least(now.hysteresis - 1, 1), pick(is_refilled, options.hysteresis, now.hysteresis));
  const Number lower = at_least(now.scale * options.backoff_factor, options.min_scale);
  next.scale = pick(overflows, pick(is_out_of_patience, lower, now.scale), next.scale);
  next.growth = pick(overflows, static_cast<double>(-options.growth_delay), next.growth);
  if (may_fail(options)) {
    const Flag is_unusable =
        (overflows & is_out_of_patience & (now.scale <= options.min_scale)) | (now.unusable != 0);
    next.unusable = (now.unusable + 1) * is_unusable;
  }
  return next;
}

// In place. The host's is changed where it becomes another one alone: who has scaled a loss by it may still
// be about to run backward.
void adapt_on_host(const GradScalerOptions& options, const at::Tensor& scale, const at::Tensor& counts,
                   const at::Tensor& found_inf, std::int64_t steps) {
  auto* const count = counts.mutable_data_ptr<std::int32_t>();
  const LossScale<double> now{.scale = *scale.const_data_ptr<float>(),
                              .growth = static_cast<double>(count[kGrowth]),
                              .hysteresis = static_cast<double>(count[kHysteresis]),
                              .unusable = static_cast<double>(count[kUnusable])};
  const bool overflows = *found_inf.const_data_ptr<float>() != 0.0F;
  const auto next = adapted(options, now, overflows);
  count[kGrowth] = static_cast<std::int32_t>(next.growth);
  count[kHysteresis] = static_cast<std::int32_t>(next.hysteresis);
  count[kUnusable] = static_cast<std::int32_t>(next.unusable);
  if (next.scale != now.scale) scale.fill_(static_cast<float>(next.scale));
  if (next.unusable != 0) require_usable(options, scale, counts, steps);
}

void adapt_on_device(const GradScalerOptions& options, const at::Tensor& scale, const at::Tensor& counts,
                     const at::Tensor& found_inf) {
  const auto growth = counts[kGrowth], hysteresis = counts[kHysteresis], unusable = counts[kUnusable];
  const LossScale<at::Tensor> now{
      .scale = scale.to(at::kDouble), .growth = growth, .hysteresis = hysteresis, .unusable = unusable};
  const auto next = adapted(options, now, found_inf != 0);
  scale.copy_(next.scale);
  growth.copy_(next.growth);
  hysteresis.copy_(next.hysteresis);
  if (may_fail(options)) unusable.copy_(next.unusable);
}

// What of a gradient is stored: duplicates in a sparse one may overflow when they are added up.
at::Tensor values_of(const at::Tensor& gradient) {
  return gradient.is_sparse() ? gradient._values() : gradient;
}

}  // namespace

void describe(OptionVisitor& v, GradScalerOptions& o) {
  v.field("init_scale", o.init_scale, "What the first losses are multiplied by", more_than(0));
  v.field("growth_factor", o.growth_factor,
          "What the scale is multiplied by after growth_interval good steps", more_than(1));
  v.field("backoff_factor", o.backoff_factor, "What the scale is multiplied by after a gradient overflowed",
          more_than(0));
  v.field("growth_interval", o.growth_interval, "Good steps in a row before the scale grows", at_least(1));
  v.field("hysteresis", o.hysteresis, "Overflows until the scale backs off", at_least(1));
  v.field("consecutive_hysteresis", o.consecutive_hysteresis,
          "Every good step refills the hysteresis, not only growth of the scale");
  v.field("growth_delay", o.growth_delay,
          "Good steps that growth waits longer at the beginning and after an overflow", at_least(0));
  v.field("min_scale", o.min_scale, "The smallest scale; 0: none", at_least(0));
  v.field("fails_at_min_scale", o.fails_at_min_scale, "An overflow at min_scale is an error");
  v.field("dynamic", o.dynamic, "false: the scale stays init_scale");
  v.field("enabled", o.enabled, "Scale losses; else they stay as they are");
}

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), init_growth_tracker_(-options.growth_delay), hysteresis_left_(options.hysteresis) {
  if (!options.enabled) return;
  if (const auto problem = problem_of(options)) throw ConfigError("precision", *problem);
}

void GradScaler::require_scale(const char* call) const {
  if (scale_.defined()) return;
  refuse(std::string(call) + "() was called before scale()", "backward starts from scaler.scale(loss)");
}

// A run may go on with gradients from a checkpoint, which were scaled as its state says.
void GradScaler::require_scale_for(const Optimizer& optimizer, const char* call) {
  if (!scale_.defined() && is_loaded_) place_scale(optimizer.parameters().front().tensor.device());
  require_scale(call);
}

at::Tensor GradScaler::scale(const at::Tensor& outputs) {
  if (!options_.enabled) return outputs;
  place_scale(outputs.device());
  return outputs * scale_;
}

void GradScaler::place_scale(at::Device device) {
  if (!scale_.defined()) {
    scale_ = at::full({}, options_.init_scale, at::TensorOptions(device).dtype(at::kFloat));
    growth_tracker_ = at::zeros({kCounts}, at::TensorOptions(device).dtype(at::kInt));
    growth_tracker_[kGrowth].fill_(init_growth_tracker_);
    growth_tracker_[kHysteresis].fill_(hysteresis_left_);
  } else if (scale_.device() != device) {
    scale_ = scale_.to(device);
    growth_tracker_ = growth_tracker_.to(device);
  }
}

// The reciprocal is taken in float64, as torch does.
at::Tensor GradScaler::inverse_scale(const at::TensorOptions& options) const {
  if (knows_scale()) return at::full({}, 1.0 / scale_.item<double>(), options);
  return scale_.to(at::kDouble).reciprocal().to(options);
}

void GradScaler::unscale_gradients(Optimizer& optimizer, PerOptimizer& found) const {
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
  for (const auto& [name, parameter] : optimizer.parameters()) {
    if (!parameter.grad().defined()) continue;
    const auto values = values_of(parameter.grad());
    if (values.scalar_type() == at::kHalf && parameter.scalar_type() == at::kHalf)
      refuse("the gradient of " + name + " is float16, which has no room to be unscaled",
             "keep parameters in float32 (16-mixed), or use 16-true, which does not scale");
    by_dtype[values.scalar_type()].push_back(values);
  }
  const auto inverse = inverse_scale(found.found_inf.options());
  for (const auto& [dtype, gradients] : by_dtype) {
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found.found_inf, inverse);
  }
  found.has_gradients = !by_dtype.empty();
}

GradScaler::PerOptimizer& GradScaler::begin(const Optimizer& optimizer, const char* call) {
  require_scale_for(optimizer, call);
  auto& found = per_optimizer_[&optimizer];
  if (found.stage == Stage::kUnscaled)
    refuse("unscale() has already been called on this optimizer since the last update()");
  if (found.stage == Stage::kStepped) {
    if (!leaves_gradients_alone(options_)) refuse(std::string(call) + "() is being called after step()");
    found = {};
  }
  found.recording = detail::StepRecording::current();
  const auto device = optimizer.parameters().front().tensor.device();
  const auto floats = at::TensorOptions(device).dtype(at::kFloat);
  const bool may_be_unusable = may_fail(options_) && !growth_tracker_.is_cpu();
  found.found_inf = may_be_unusable ? growth_tracker_[kUnusable].ne(0).to(floats) : at::zeros({}, floats);
  return found;
}

void GradScaler::unscale(Optimizer& optimizer) {
  if (!options_.enabled) return;
  auto& found = begin(optimizer, "unscale");
  unscale_gradients(optimizer, found);
  found.stage = Stage::kUnscaled;
}

void GradScaler::check(Optimizer& optimizer) {
  if (!options_.enabled) return;
  auto& found = begin(optimizer, "check");
  const at::NoGradGuard no_grad;
  for (const auto& parameter : optimizer.parameters()) {
    const auto& gradient = parameter.tensor.grad();
    if (!gradient.defined()) continue;
    found.has_gradients = true;
    if (!is_finite(values_of(gradient))) found.found_inf.fill_(1.0);
  }
  found.stage = Stage::kUnscaled;
}

GradScaler::PerOptimizer& GradScaler::unscaled(const Optimizer& optimizer, const char* call) {
  const auto found = per_optimizer_.find(&optimizer);
  if (found == per_optimizer_.end() || !found->second.found_inf.defined())
    refuse(std::string(call) + "() was called before unscale()");
  return found->second;
}

at::Tensor GradScaler::found_inf(const Optimizer& optimizer) {
  auto& found = unscaled(optimizer, "found_inf");
  found.has_gradients = true;  // another rank may have some
  return found.found_inf;
}

// A rank without gradients says -1, which is the maximum where no rank has any.
void GradScaler::agree(const Optimizer& optimizer,
                       const std::function<void(const at::Tensor&)>& max_over_ranks) {
  auto& found = unscaled(optimizer, "agree");
  if (!found.has_gradients) found.found_inf.fill_(-1.0);
  max_over_ranks(found.found_inf);
  if (found.has_gradients) return;
  // A step that is recorded had gradients when it was not.
  found.has_gradients = detail::StepRecording::current() != nullptr || found.found_inf.item<float>() >= 0.0F;
  found.found_inf.clamp_min_(0.0);
}

bool GradScaler::has_overflowed(const Optimizer& optimizer) {
  auto& known = unscaled(optimizer, "has_overflowed").found_inf;
  known = known.to(at::kCPU);
  return known.item<float>() != 0.0F;
}

bool GradScaler::step(Optimizer& optimizer) {
  return step(optimizer, [&] { optimizer.step(); });
}

bool GradScaler::step(Optimizer& optimizer, const std::function<void()>& update) {
  if (!options_.enabled) {
    update();
    return true;
  }
  auto& found = begin_step(optimizer);
  detail::refuse_in_recording("a step that the host leaves out when gradients overflowed");
  const bool is_finite = !has_overflowed(optimizer);
  if (is_finite) update();
  found.stage = Stage::kStepped;
  ++steps_;
  skipped_ += is_finite ? 0 : 1;
  total_skipped_ += is_finite ? 0 : 1;
  skipped_in_a_row_ = is_finite ? 0 : skipped_in_a_row() + 1;
  if (left_out_.defined()) left_out_.select(0, 1).fill_(static_cast<double>(skipped_in_a_row_));
  return is_finite;
}

GradScaler::PerOptimizer& GradScaler::begin_step(Optimizer& optimizer) {
  require_scale_for(optimizer, "step");
  auto& found = per_optimizer_[&optimizer];
  if (found.stage == Stage::kStepped && !leaves_gradients_alone(options_))
    refuse("step() has already been called since the last update()");
  if (found.stage != Stage::kUnscaled) unscale(optimizer);
  if (!found.has_gradients) refuse("step() found no gradient to check", "call backward() before step()");
  return found;
}

Scalar GradScaler::step_lazily(Optimizer& optimizer, const std::function<void()>& update) {
  if (!options_.enabled) return step(optimizer, update);
  auto& found = begin_step(optimizer);
  if (found.found_inf.is_cpu() || !optimizer.leave_out_next_step_if(found.found_inf))
    return step(optimizer, update);
  update();
  found.stage = Stage::kStepped;
  detail::once_per_step([this] { ++steps_; });
  return count_on_device(found.found_inf);
}

Scalar GradScaler::count_on_device(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  const auto left_out = found_inf.to(at::kDouble);
  if (!left_out_.defined()) {
    left_out_ = at::zeros({2}, left_out.options());
    left_out_.select(0, 1).fill_(static_cast<double>(skipped_in_a_row_));
  }
  if (left_out_.device() != left_out.device()) left_out_ = left_out_.to(left_out.device());
  left_out_.select(0, 0).add_(left_out);
  left_out_.select(0, 1).add_(1.0).mul_(left_out);
  return Scalar::of_last_use(1.0 - left_out);
}

// Whoever looks at what steps on a device were learns that they cannot go on.
GradScaler::LeftOut GradScaler::left_out_on_device() const {
  require_usable(options_, scale_, growth_tracker_, steps_);
  if (!left_out_.defined()) return {};
  const auto host = left_out_.to(at::kCPU);
  return {.total = host[0].item<std::int64_t>(), .in_a_row = host[1].item<std::int64_t>()};
}

std::int64_t GradScaler::skipped_in_a_row() const {
  return left_out_.defined() ? left_out_on_device().in_a_row : skipped_in_a_row_;
}

bool GradScaler::follows_torch() const {
  return options_.hysteresis == 1 && options_.growth_delay == 0 && options_.min_scale == 0;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  require_scale("update");
  if (new_scale) {
    detail::refuse_in_recording("a loss scale that the program chooses");
    scale_.fill_(*new_scale);
  } else {
    at::Tensor found_inf;
    for (const auto& [optimizer, found] : per_optimizer_) {
      if (!found.has_gradients) continue;
      if (found.recording != detail::StepRecording::current())
        detail::refuse_in_recording("an update of the loss scale for a step before");
      const auto there = found.found_inf.to(scale_.device());
      found_inf = found_inf.defined() ? found_inf + there : there;
    }
    if (!found_inf.defined()) refuse("update() was called, but nothing was unscaled since the last one");
    adapt(found_inf);
  }
  per_optimizer_.clear();
}

void GradScaler::adapt(const at::Tensor& found_inf) {
  if (!options_.dynamic) return;
  const at::NoGradGuard no_grad;
  if (!follows_torch())
    return scale_.is_cpu() ? adapt_on_host(options_, scale_, growth_tracker_, found_inf, steps_)
                           : adapt_on_device(options_, scale_, growth_tracker_, found_inf);
  auto growth = growth_tracker_[kGrowth];
  at::_amp_update_scale_(scale_, growth, found_inf, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
}

bool GradScaler::is_unscaled(const Optimizer& optimizer) const {
  const auto found = per_optimizer_.find(&optimizer);
  return found != per_optimizer_.end() && found->second.stage == Stage::kUnscaled;
}

bool GradScaler::has_stepped() const {
  for (const auto& [optimizer, found] : per_optimizer_) {
    if (found.stage == Stage::kStepped) return true;
  }
  return false;
}

void GradScaler::discard(const Optimizer& optimizer) {
  const auto found = per_optimizer_.find(&optimizer);
  if (found != per_optimizer_.end() && found->second.stage == Stage::kUnscaled) per_optimizer_.erase(found);
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1.0;
  return scale_.defined() ? scale_.item<double>() : options_.init_scale;
}

StateTree GradScaler::state() const {
  StateTree state;
  if (!options_.enabled) return state;
  const auto counts = growth_tracker_.defined() ? growth_tracker_.to(at::kCPU) : at::Tensor();
  state.set("scale", get_scale());
  state.set("growth_factor", options_.growth_factor);
  state.set("backoff_factor", options_.backoff_factor);
  state.set("growth_interval", options_.growth_interval);
  state.set("_growth_tracker",
            counts.defined() ? counts[kGrowth].item<std::int64_t>() : init_growth_tracker_);
  if (options_.hysteresis > 1)
    state.set("_hysteresis_left",
              counts.defined() ? counts[kHysteresis].item<std::int64_t>() : std::int64_t{hysteresis_left_});
  // What torch's scaler keeps has torch's keys alone.
  const bool is_torchs = options_.dynamic && options_.growth_delay == 0;
  if (!is_torchs && total_skipped_steps() > 0) state.set("_skipped_steps", total_skipped_steps());
  if (!options_.dynamic) state.set("_dynamic", false);
  return state;
}

void GradScaler::load_state(const StateTree& state) {
  detail::outdate_recordings();
  if (!options_.enabled) return;
  if (state.empty()) {
    throw CheckpointError("precision", {.what = "the state of a GradScaler is empty",
                                        .expected = "scale, growth_factor, ...",
                                        .hint = "it may be that of a disabled one"});
  }
  const auto skipped = state.contains("_skipped_steps") ? state.get<std::int64_t>("_skipped_steps") : 0;
  // A scale that somebody chose says nothing of one that is found, nor the other way round.
  if (options_.dynamic && !state.contains("_dynamic")) load_scale(state);
  total_skipped_ = skipped - left_out_on_device().total;
  is_loaded_ = true;
  per_optimizer_.clear();
}

void GradScaler::load_scale(const StateTree& state) {
  auto loaded = options_;
  loaded.init_scale = state.get<double>("scale");
  loaded.growth_factor = state.get<double>("growth_factor");
  loaded.backoff_factor = state.get<double>("backoff_factor");
  loaded.growth_interval = state.get<std::int64_t>("growth_interval");
  const auto growth_tracker = state.get<std::int64_t>("_growth_tracker");
  if (const auto problem = problem_of(loaded)) throw CheckpointError("precision", *problem);
  const auto left = state.contains("_hysteresis_left")
                        ? static_cast<int>(state.get<std::int64_t>("_hysteresis_left"))
                        : options_.hysteresis;
  hysteresis_left_ = std::clamp(left, 1, options_.hysteresis);
  options_ = loaded;
  init_growth_tracker_ = growth_tracker;
  if (!scale_.defined()) return;
  scale_.fill_(loaded.init_scale);
  growth_tracker_[kGrowth].fill_(growth_tracker);
  growth_tracker_[kHysteresis].fill_(hysteresis_left_);
  growth_tracker_[kUnusable].zero_();
}

}  // namespace lockstep
