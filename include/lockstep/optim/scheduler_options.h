// How the learning rate changes: aggregates with torch.optim.lr_scheduler's names, defaults and values.
//
// k counts scheduler steps from 0; base is the group's initial_lr. All but ReduceLROnPlateau are closed forms
// of k, so a curve can be resumed at any k. (torch multiplies step by step; it differs from these by
// rounding.)
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <lockstep/base/option_type.h>
#include <lockstep/deepspeed/lr_schedules.h>

namespace lockstep {

/// base * factor for k < total_iters, then base.
struct ConstantLR {
  double factor = 1.0 / 3.0;     ///< in [0, 1]
  std::int64_t total_iters = 5;  ///< >= 0
};

/// base times a factor that goes from start_factor to end_factor in total_iters steps and stays there.
struct LinearLR {
  double start_factor = 1.0 / 3.0;  ///< in (0, 1]
  double end_factor = 1.0;          ///< in [0, 1]
  std::int64_t total_iters = 5;     ///< >= 1
};

/// base * gamma^k.
struct ExponentialLR {
  double gamma = 0.0;  ///< required, > 0
};

/// base * gamma^floor(k / step_size).
struct StepLR {
  std::int64_t step_size = 0;  ///< required, >= 1
  double gamma = 0.1;          ///< > 0
};

/// base * gamma^(number of milestones <= k).
struct MultiStepLR {
  std::vector<std::int64_t> milestones = {};  ///< required, in ascending order
  double gamma = 0.1;                         ///< > 0
};

/// Half a cosine from base at k = 0 to eta_min at k = T_max (and back). Loshchilov, Hutter: arXiv 1608.03983.
struct CosineAnnealingLR {
  std::int64_t T_max = 0;  ///< required, >= 1
  double eta_min = 0.0;    ///< >= 0
};

/// base * lr_lambda(k).
struct LambdaLR {
  std::function<double(std::int64_t)> lr_lambda = {};  ///< required
};

/// Up from max_lr / div_factor to max_lr, then down to max_lr / div_factor / final_div_factor at
/// k = total_steps - 1; a further step is allowed and stays there, more are refused. Does not depend on base.
/// Smith, Topin: arXiv 1708.07120.
struct OneCycleLR {
  double max_lr = 0.0;                  ///< required, > 0
  std::int64_t total_steps = 0;         ///< required, >= 1
  double pct_start = 0.3;               ///< share of the steps that go up, in [0, 1]
  std::string anneal_strategy = "cos";  ///< "cos" or "linear"
  bool cycle_momentum = true;           ///< momentum (or beta1) goes max, base, max along the same curve
  double base_momentum = 0.85;          ///< in [0, 1)
  double max_momentum = 0.95;           ///< in [0, 1)
  double div_factor = 25.0;             ///< > 0
  double final_div_factor = 1e4;        ///< > 0
  bool three_phase = false;             ///< down to max_lr / div_factor first, then to the end
};

/// DeepSpeed's WarmupLR: min_lr for k <= 1 (its first two steps), then up to max_lr, reached at k = num_steps
/// ("log") or num_steps + 1 ("linear"). Does not depend on base.
struct WarmupLR {
  double min_lr = 0.0;              ///< >= 0
  double max_lr = 1e-3;             ///< >= 0
  std::int64_t num_steps = 1000;    ///< >= 1; 1 counts as 2
  std::string warmup_type = "log";  ///< "log" or "linear"
};

/// DeepSpeed's WarmupDecayLR: as WarmupLR, then down to min_lr in a straight line, reached at k =
/// total_num_steps + 1.
struct WarmupDecayLR {
  double min_lr = 0.0;               ///< >= 0
  double max_lr = 1e-3;              ///< >= 0
  std::int64_t num_steps = 1000;     ///< >= 1; 1 counts as 2
  std::int64_t total_num_steps = 0;  ///< required, >= num_steps
  std::string warmup_type = "log";   ///< "log" or "linear"
};

/// Multiplies the learning rate by factor when the watched metric has not improved for more than patience
/// steps.
struct ReduceLROnPlateau {
  std::string mode = "min";            ///< "min": lower is better; "max": higher is
  double factor = 0.1;                 ///< in (0, 1)
  std::int64_t patience = 10;          ///< steps without improvement that are put up with, >= 0
  double threshold = 1e-4;             ///< how much better counts as better, >= 0
  std::string threshold_mode = "rel";  ///< "rel": threshold is a share of the best value; "abs"
  std::int64_t cooldown = 0;           ///< steps after a cut in which bad values do not count, >= 0
  double min_lr = 0.0;                 ///< never cut below this, >= 0
  double eps = 1e-8;                   ///< smaller cuts are left out, >= 0
};

/// From base at k = 0 to swa_lr at k = anneal_epochs, and stays there; with 0 epochs it is there at once.
/// torch.optim.swa_utils.SWALR. Izmailov et al.: arXiv 1803.05407.
struct SWALR {
  std::vector<double> swa_lr = {};      ///< required, > 0; one for all groups, or one for each
  std::int64_t anneal_epochs = 10;      ///< >= 0
  std::string anneal_strategy = "cos";  ///< "cos" or "linear"
};

/// What section "scheduler" of DeepSpeed's JSON says. k is its t + 1: the first two steps of a warm-up are at
/// the minimum.
struct DeepSpeedLR {
  deepspeed::Scheduler scheduler = {};  ///< required
};

struct SchedulerOptions;

/// schedulers[0] until milestones[0], then schedulers[1] with its own k counted from there, and so on.
struct SequentialLR {
  std::vector<SchedulerOptions> schedulers = {};  ///< required; not ReduceLROnPlateau
  std::vector<std::int64_t> milestones = {};      ///< one fewer than schedulers, ascending, >= 1
};

/// Any of the above.
struct SchedulerOptions
    : std::variant<ConstantLR, LinearLR, ExponentialLR, StepLR, MultiStepLR, CosineAnnealingLR, LambdaLR,
                   OneCycleLR, WarmupLR, WarmupDecayLR, ReduceLROnPlateau, SWALR, DeepSpeedLR, SequentialLR> {
  using variant::variant;
};

/// When a trainer steps a scheduler.
enum class Interval {
  kEpoch,  ///< "epoch": after each training epoch
  kStep    ///< "step": after each optimizer step
};

LOCKSTEP_API std::span<const OptionName<Interval>> option_names(Interval);

/// A scheduler and when to step it; Lightning's scheduler configuration.
struct LRScheduler {
  SchedulerOptions scheduler;                        ///< the curve
  EnumOption<Interval> interval = Interval::kEpoch;  ///< when it is stepped
  int frequency = 1;                                 ///< every how many epochs or optimizer steps, >= 1
  std::string monitor = "";  ///< name of the logged metric ReduceLROnPlateau watches; it needs one
  std::string name = "";     ///< under which the learning rate is logged; empty: the optimizer's
};

}  // namespace lockstep
