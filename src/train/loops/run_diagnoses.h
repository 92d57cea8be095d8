// What a fit notices of itself: how long a rank waits for data, and where its memory is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "train/options/run_setup.h"

namespace lockstep::detail {

/// Measures how long a rank waits for its batches, and warns once where that is more than a fifth of the
/// time.
class DataWaits {
 public:
  using Clock = std::chrono::steady_clock;

  /// A batch of so many samples was asked for at `asked`, and is there at `came`.
  void add(Clock::time_point asked, Clock::time_point came, std::int64_t samples);

  /// The warning that is due now; empty where none is, as after it. The first batch does not count, since it
  /// waits for all workers to start.
  std::string take_warning();

 private:
  Clock::time_point began_ = {};  // with the first batch
  Clock::time_point came_ = {};
  Clock::duration waited_ = {};
  std::int64_t batches_ = -1;
  std::int64_t samples_ = 0;
  bool is_over_ = false;
};

/// What would make room in the memory of a rank, in the order of docs/troubleshooting.md.
std::string ways_to_make_room(const RunSetup& setup, std::int64_t batch_size);

/// Notes, for the case that memory runs out, where a rank's memory is.
class MemoryNotes {
 public:
  /// When training begins: parameters, and what would make room.
  void begin(const RunSetup& setup, std::int64_t batch_size);
  /// After a step of the optimizers; the first one counts.
  void after_step(const RunSetup& setup);

 private:
  std::int64_t before_training_ = 0;
  std::string ways_;
  bool is_done_ = true;
};

}  // namespace lockstep::detail
