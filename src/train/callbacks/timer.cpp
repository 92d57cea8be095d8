#include <lockstep/train/callbacks/timer.h>

#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>
#include <lockstep/strategy/strategy.h>

#include "train/stopping/agreement_cadence.h"

namespace lockstep {

using Clock = std::chrono::steady_clock;

struct Timer::Span {
  std::optional<Clock::time_point> start = {};
  std::optional<Clock::time_point> end = {};

  Seconds elapsed() const {
    if (!start) return Seconds(0);
    return end.value_or(Clock::now()) - *start;
  }
};

namespace {

constexpr std::size_t kStages = static_cast<std::size_t>(Stage::kPredict) + 1;

void end_run(TrainContext& context, const TimerOptions& options) {
  if (options.verbose && context.is_global_zero())
    log_info("Time limit reached. Elapsed time is " +
             OptionType<std::chrono::milliseconds>::print(*options.duration) +
             " or more. Signaling Trainer to stop.");
  context.stop_this_run();
}

}  // namespace

Timer::Timer(TimerOptions options) : options_(options), spans_(std::make_unique<Span[]>(kStages)) {}
Timer::~Timer() = default;

Timer::Span& Timer::span(Stage stage) const { return spans_[static_cast<std::size_t>(stage)]; }

Timer::Seconds Timer::time_elapsed(Stage stage) const {
  const auto elapsed = span(stage).elapsed();
  return stage == Stage::kFit ? elapsed + Seconds(before_) : elapsed;
}

std::optional<Timer::Seconds> Timer::time_remaining() const {
  if (!options_.duration) return std::nullopt;
  return Seconds(*options_.duration) - time_elapsed();
}

void Timer::setup(TrainContext& context) {
  if (context.stage() == Stage::kFit) before_ = {};
}

// A fit whose time was over when it was saved trains nothing, whatever the interval, as Lightning's.
void Timer::on_train_start(TrainContext& context) {
  span(Stage::kFit) = {.start = Clock::now()};
  if (!options_.duration) return;
  clock_ = std::make_unique<detail::AgreedClock>(*options_.duration, before_);
  const bool is_over = before_ >= *options_.duration;
  const auto& communicator = context.strategy().communicator();
  if (!communicator.broadcast_bytes(is_over ? "over" : "", 0).empty()) end_run(context, options_);
}
void Timer::on_train_end(TrainContext&) { span(Stage::kFit).end = Clock::now(); }

void Timer::on_train_batch_end(StepContext& step, const TrainOutput&) {
  if (options_.interval == TimerInterval::kStep) stop_if_over(step);
}
void Timer::on_train_epoch_end(TrainContext& context) {
  if (options_.interval == TimerInterval::kEpoch) stop_if_over(context);
}

void Timer::on_validation_start(TrainContext&) { span(Stage::kValidate) = {.start = Clock::now()}; }
void Timer::on_validation_end(TrainContext&) { span(Stage::kValidate).end = Clock::now(); }
void Timer::on_test_start(TrainContext&) { span(Stage::kTest) = {.start = Clock::now()}; }
void Timer::on_test_end(TrainContext&) { span(Stage::kTest).end = Clock::now(); }
void Timer::on_predict_start(TrainContext&) { span(Stage::kPredict) = {.start = Clock::now()}; }
void Timer::on_predict_end(TrainContext&) { span(Stage::kPredict).end = Clock::now(); }

void Timer::stop_if_over(TrainContext& context) {
  // All ranks must ask the clock equally often, even if some want to stop already.
  if (!clock_ || !clock_->is_due(context.strategy().communicator()) || context.should_stop()) return;
  end_run(context, options_);
}

StateTree Timer::state() const {
  StateTree state;
  state.set("elapsed_seconds", time_elapsed().count());
  return state;
}

void Timer::load_state(const StateTree& state) {
  before_ = std::chrono::duration_cast<Clock::duration>(Seconds(state.get<double>("elapsed_seconds")));
}

std::span<const OptionName<TimerInterval>> option_names(TimerInterval) {
  static constexpr OptionName<TimerInterval> kNames[] = {{"step", TimerInterval::kStep},
                                                         {"epoch", TimerInterval::kEpoch}};
  return kNames;
}

void describe(OptionVisitor& v, TimerOptions& o) {
  v.field("duration", o.duration, "The fit ends when it has taken so long; null: it is measured",
          more_than(0));
  v.field("interval", o.interval, "Check the clock after each step, or each epoch");
  v.field("verbose", o.verbose, "Say that the time is over");
}

}  // namespace lockstep
