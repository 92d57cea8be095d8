// val_check_interval: how often a fit validates.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// A fraction of a training epoch (over 0.0, up to 1.0), a number of training batches (an integer >= 1), or a
/// time. As in Lightning, 1 is every batch and 1.0 once an epoch.
class LOCKSTEP_API ValCheckInterval {
 public:
  using Value = std::variant<double, std::int64_t, std::chrono::milliseconds>;

  ValCheckInterval() = default;
  ValCheckInterval(int batches) : value_(std::int64_t{batches}) {}
  ValCheckInterval(std::int64_t batches) : value_(batches) {}
  ValCheckInterval(double fraction) : value_(fraction) {}
  template <class Count, class Period>
  ValCheckInterval(std::chrono::duration<Count, Period> time)
      : value_(std::chrono::duration_cast<std::chrono::milliseconds>(time)) {}

  const Value& value() const { return value_; }
  /// Once, at the end of an epoch.
  bool is_whole_epoch() const { return value_ == Value(1.0); }
  bool is_time() const { return std::holds_alternative<std::chrono::milliseconds>(value_); }

  static Expected<ValCheckInterval> parse(std::string_view text);
  std::string print() const;

 private:
  Value value_ = 1.0;
};

template <>
struct OptionType<ValCheckInterval> {
  static Expected<ValCheckInterval> parse(std::string_view text) { return ValCheckInterval::parse(text); }
  static std::string print(const ValCheckInterval& interval) { return interval.print(); }
  static std::string accepted() {
    return "a fraction of an epoch (over 0.0, up to 1.0), a number of batches (1, 2, ...) or a time (15m, "
           "00:01:00:00)";
  }
  static std::string type() { return "fraction, int or duration"; }
};

}  // namespace lockstep
