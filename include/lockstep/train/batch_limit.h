// limit_train_batches and its kin: how many batches of an epoch are run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/options.h>

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

  static Expected<BatchLimit> parse(std::string_view text);
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

}  // namespace lockstep
