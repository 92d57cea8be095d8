// Options that count batches: how many are run, how often a fit validates, how many make an optimizer step.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// A number of batches (an integer >= 0) or a fraction of them (0.0 to 1.0). As in Lightning, 1 is
/// one batch and 1.0 is all of them.
class LOCKSTEP_API BatchLimit {
 public:
  BatchLimit() = default;
  BatchLimit(int batches) : value_(std::int64_t{batches}) {}
  BatchLimit(std::int64_t batches) : value_(batches) {}
  /// 10.0 is ten batches, as in Lightning.
  BatchLimit(double fraction);

  /// The batches to run of `available`; fractions are rounded down.
  /// @throws ConfigError naming `option` when it is negative, a fraction over 1, one that leaves no batch at
  ///   all, or one of a number that is not known
  std::int64_t apply(std::int64_t available, std::string_view option) const;

  /// Whether nothing is to be run.
  bool is_zero() const;

  /// Reads `10` or `0.25`.
  static Expected<BatchLimit> parse(std::string_view text);
  /// The text that parse() reads.
  std::string print() const;

 private:
  std::variant<std::int64_t, double> value_ = 1.0;
};

template <>
struct OptionType<BatchLimit> {
  static Expected<BatchLimit> parse(std::string_view text) { return BatchLimit::parse(text); }
  static std::string print(const BatchLimit& limit) { return limit.print(); }
  static std::string accepted() { return "a number of batches (1, 2, ...) or a fraction of them (0.0..1.0)"; }
};

/// How many batches of each stage are run instead of all: false for no such run, true for 1, or a number.
class LOCKSTEP_API FastDevRun {
 public:
  FastDevRun() = default;
  FastDevRun(bool one) : batches_(one ? 1 : 0) {}
  FastDevRun(int batches) : batches_(batches) {}

  /// 0: this is no such run.
  int batches() const { return batches_; }
  /// Whether this is such a run.
  explicit operator bool() const { return batches_ != 0; }

  /// Reads `true`, `false` or a number.
  static Expected<FastDevRun> parse(std::string_view text);
  /// The text that parse() reads.
  std::string print() const;

 private:
  int batches_ = 0;
};

template <>
struct OptionType<FastDevRun> {
  static Expected<FastDevRun> parse(std::string_view text) { return FastDevRun::parse(text); }
  static std::string print(const FastDevRun& run) { return run.print(); }
  static std::string accepted() { return "true, false or a number of batches >= 0"; }
  static std::string type() { return "bool or int"; }
};

/// A fraction of a training epoch (over 0.0, up to 1.0), a number of training batches (an integer >= 1), or a
/// time. As in Lightning, 1 is every batch and 1.0 once an epoch.
class LOCKSTEP_API ValCheckInterval {
 public:
  /// A fraction of an epoch, a number of batches, or a time.
  using Value = std::variant<double, std::int64_t, std::chrono::milliseconds>;

  ValCheckInterval() = default;
  ValCheckInterval(int batches) : value_(std::int64_t{batches}) {}
  ValCheckInterval(std::int64_t batches) : value_(batches) {}
  ValCheckInterval(double fraction) : value_(fraction) {}
  template <class Count, class Period>
  ValCheckInterval(std::chrono::duration<Count, Period> time)
      : value_(std::chrono::duration_cast<std::chrono::milliseconds>(time)) {}

  /// What it was made with.
  const Value& value() const { return value_; }
  /// Once, at the end of an epoch.
  bool is_whole_epoch() const { return value_ == Value(1.0); }
  /// Whether it is a time.
  bool is_time() const { return std::holds_alternative<std::chrono::milliseconds>(value_); }

  /// Reads `0.5`, `100` or `15m`.
  static Expected<ValCheckInterval> parse(std::string_view text);
  /// The text that parse() reads.
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

/// A number of micro-batches, or numbers by the epoch from which they hold: `4`, or `{{0, 1}, {5, 8}}`.
/// Before the first epoch named it is 1.
class LOCKSTEP_API AccumulationSchedule {
 public:
  /// Micro-batches per optimizer step, by the epoch from which they hold.
  using Steps = std::map<std::int64_t, int>;

  AccumulationSchedule(int micro_batches = 1) : by_epoch_{{0, micro_batches}} {}
  AccumulationSchedule(std::initializer_list<Steps::value_type> by_epoch) : by_epoch_(by_epoch) {}
  explicit AccumulationSchedule(Steps by_epoch) : by_epoch_(std::move(by_epoch)) {}

  /// Micro-batches per optimizer step in `epoch`.
  int at(std::int64_t epoch) const;
  /// The first epoch behind `epoch` that has a number of its own; the largest there is without one.
  std::int64_t next_change(std::int64_t epoch) const;
  /// What it was made with.
  const Steps& by_epoch() const { return by_epoch_; }
  /// Whether it is the same in every epoch.
  bool is_constant() const { return by_epoch_.size() == 1 && by_epoch_.begin()->first == 0; }

  /// Reads `4` or `{0: 1, 4: 2}`.
  static Expected<AccumulationSchedule> parse(std::string_view text);
  /// The text that parse() reads.
  std::string print() const;

  bool operator==(const AccumulationSchedule&) const = default;

 private:
  Steps by_epoch_;
};

template <>
struct OptionType<AccumulationSchedule> {
  /// It is written as a map.
  static constexpr bool kIsMap = true;
  static Expected<AccumulationSchedule> parse(std::string_view text) {
    return AccumulationSchedule::parse(text);
  }
  static std::string print(const AccumulationSchedule& schedule) { return schedule.print(); }
  static std::string accepted() { return "an integer >= 1, or {epoch: integer >= 1, ...}"; }
  static std::string type() { return "int or map"; }
};

}  // namespace lockstep
