// accumulate_grad_batches: micro-batches per optimizer step, for all epochs or by epoch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// A number of micro-batches, or numbers by the epoch from which they hold: `4`, or `{{0, 1}, {5, 8}}`.
/// Before the first epoch named it is 1.
class LOCKSTEP_API AccumulationSchedule {
 public:
  using Steps = std::map<std::int64_t, int>;

  AccumulationSchedule(int micro_batches = 1) : by_epoch_{{0, micro_batches}} {}
  AccumulationSchedule(std::initializer_list<Steps::value_type> by_epoch) : by_epoch_(by_epoch) {}
  explicit AccumulationSchedule(Steps by_epoch) : by_epoch_(std::move(by_epoch)) {}

  /// Micro-batches per optimizer step in `epoch`.
  int at(std::int64_t epoch) const;
  /// The first epoch behind `epoch` that has a number of its own; the largest there is without one.
  std::int64_t next_change(std::int64_t epoch) const;
  /// Whether it is the same in every epoch.
  bool is_constant() const { return by_epoch_.size() == 1 && by_epoch_.begin()->first == 0; }

  static Expected<AccumulationSchedule> parse(std::string_view text);
  std::string print() const;

  bool operator==(const AccumulationSchedule&) const = default;

 private:
  Steps by_epoch_;
};

template <>
struct OptionType<AccumulationSchedule> {
  static constexpr bool kIsMap = true;
  static Expected<AccumulationSchedule> parse(std::string_view text) {
    return AccumulationSchedule::parse(text);
  }
  static std::string print(const AccumulationSchedule& schedule) { return schedule.print(); }
  static std::string accepted() { return "an integer >= 1, or {epoch: integer >= 1, ...}"; }
  static std::string type() { return "int or map"; }
};

}  // namespace lockstep
