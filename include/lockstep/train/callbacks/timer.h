// Timer: how long a run has taken, and its end when that is too long.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include <lockstep/base/option_visitor.h>
#include <lockstep/train/hooks.h>

namespace lockstep {

namespace detail {
class AgreedClock;
}

/// When a Timer checks the clock.
enum class TimerInterval {
  kStep,  ///< after each training batch
  kEpoch  ///< at the end of each epoch
};

LOCKSTEP_API std::span<const OptionName<TimerInterval>> option_names(TimerInterval);

/// How long a fit may take.
struct TimerOptions {
  std::optional<std::chrono::milliseconds> duration = {};     ///< none: only measure
  EnumOption<TimerInterval> interval = TimerInterval::kStep;  ///< when the time is looked at
  bool verbose = true;                                        ///< say that the time is over
};

LOCKSTEP_API void describe(OptionVisitor& visitor, TimerOptions& options);

/// Stops a fit whose duration is over, by rank 0's clock: TrainerOptions::max_time. Its state is the time
/// that has passed, so that a resumed run counts what was before. Lightning's Timer.
class LOCKSTEP_API Timer final : public Callback {
 public:
  /// Seconds, with fractions.
  using Seconds = std::chrono::duration<double>;

  explicit Timer(TimerOptions options = {});
  ~Timer() override;

  /// Of the fit, with what it was resumed from; of the other stages, the last one's.
  Seconds time_elapsed(Stage stage = Stage::kFit) const;
  /// Until a fit ends; none without a duration.
  std::optional<Seconds> time_remaining() const;

  void setup(TrainContext& context) override;
  void on_train_start(TrainContext& context) override;
  void on_train_end(TrainContext& context) override;
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override;
  void on_train_epoch_end(TrainContext& context) override;
  void on_validation_start(TrainContext& context) override;
  void on_validation_end(TrainContext& context) override;
  void on_test_start(TrainContext& context) override;
  void on_test_end(TrainContext& context) override;
  void on_predict_start(TrainContext& context) override;
  void on_predict_end(TrainContext& context) override;

  StateTree state() const override;
  void load_state(const StateTree& state) override;

 private:
  struct Span;

  void stop_if_over(TrainContext& context);
  Span& span(Stage stage) const;

  TimerOptions options_;
  std::unique_ptr<detail::AgreedClock> clock_;
  std::unique_ptr<Span[]> spans_;
  std::chrono::steady_clock::duration before_ = {};  // what the run was resumed from had taken
};

}  // namespace lockstep
