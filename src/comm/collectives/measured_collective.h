// Tells the observer of this process, if it has one, what a collective took.
#pragma once

#include <lockstep/comm/collective_observer.h>

#include "comm/collectives/collective.h"

namespace lockstep::detail {

/// Lives while a collective is carried out.
class MeasuredCollective {
 public:
  /// Borrows it.
  explicit MeasuredCollective(const Collective& collective) noexcept : collective_(collective) {
    if (is_observed()) begin_ = std::chrono::steady_clock::now();
  }
  ~MeasuredCollective() {
    if (begin_ != std::chrono::steady_clock::time_point()) tell();
  }
  MeasuredCollective(const MeasuredCollective&) = delete;
  MeasuredCollective& operator=(const MeasuredCollective&) = delete;

 private:
  static bool is_observed() noexcept;
  void tell() const noexcept;

  const Collective& collective_;
  std::chrono::steady_clock::time_point begin_ = {};
};

}  // namespace lockstep::detail
