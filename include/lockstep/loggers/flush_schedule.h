// When a logger writes out the rows that it holds.
#pragma once

#include <chrono>

namespace lockstep {

/// Every so many rows, or once a second.
class FlushSchedule {
 public:
  explicit FlushSchedule(int flush_every_n_rows) : flush_every_n_rows_(flush_every_n_rows) {}

  /// Counts a row; whether it is time to write.
  bool add_row() {
    const bool waited = std::chrono::steady_clock::now() - last_flush_ > std::chrono::seconds(1);
    return ++rows_ >= flush_every_n_rows_ || waited;
  }
  /// The rows were written, or it was tried.
  void flushed() {
    rows_ = 0;
    last_flush_ = std::chrono::steady_clock::now();
  }

 private:
  int flush_every_n_rows_;
  int rows_ = 0;
  std::chrono::steady_clock::time_point last_flush_ = {};
};

}  // namespace lockstep
