// Accumulation windows: which micro-batches make an optimizer step together, and how many steps there are.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>
#include <lockstep/train/batch_counts.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep::detail {

/// The window whose optimizer step is to come.
struct OpenWindow {
  std::int64_t done = 0;    ///< micro-batches that have added their gradients; 0: the next one opens a window
  std::int64_t length = 1;  ///< what it was opened for, and each of its losses is divided by

  bool operator==(const OpenWindow&) const = default;
};

/// Where in the data a micro-batch is.
struct MicroBatch {
  std::int64_t epoch = 0;
  std::int64_t index = 0;          ///< in its epoch
  std::int64_t epoch_batches = 0;  ///< of that epoch, as far as it is known
};

/// The role of a micro-batch in its window.
struct Window {
  bool first = true;   ///< it opens the window
  bool last = true;    ///< it completes the window: gradients are exchanged, and the optimizer steps
  double divisor = 1;  ///< of every loss in it
};

/// Decides where windows open and close. A window keeps the length that it was opened with, even if the
/// schedule or the number of batches changes while it is open.
class LOCKSTEP_API WindowRule {
 public:
  /// Borrows `schedule`. `knows_end` is false for streams, whose windows are all divided by the same number.
  WindowRule(const AccumulationSchedule& schedule, PartialWindow partial, bool knows_end)
      : schedule_(&schedule), partial_(partial), knows_end_(knows_end) {}

  /// The window of the micro-batch `at`; `done` counts those before it.
  OpenWindow holding(const OpenWindow& open, const MicroBatch& at) const;
  Window place(const OpenWindow& open, const MicroBatch& at) const;
  /// The open window after the micro-batch `at`.
  OpenWindow behind(const OpenWindow& open, const MicroBatch& at) const;
  /// The window that stays open after the end of an epoch.
  OpenWindow behind_epoch(const OpenWindow& open) const { return carries() ? open : OpenWindow{}; }
  /// Whether the window that is open before `at` can get as many micro-batches as its losses were divided by.
  bool can_complete(const OpenWindow& open, const MicroBatch& at) const;
  /// The optimizer steps from before `at` to the end of epoch `epochs` - 1, where all epochs have equally
  /// many batches; at most the largest int64.
  std::int64_t steps(const OpenWindow& open, const MicroBatch& at, std::int64_t epochs) const;

 private:
  bool carries() const { return partial_ == PartialWindow::kCarry; }

  const AccumulationSchedule* schedule_;
  PartialWindow partial_;
  bool knows_end_;
};

}  // namespace lockstep::detail
