// What files need to name the library's callbacks, beside the options that code gives: structs for those that
// are made from other arguments, and options of several types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include <lockstep/base/expected.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/option_visitor.h>
#include <lockstep/train/batch_counts.h>
#include <lockstep/train/tuner_options.h>

namespace lockstep {

/// Of GradientAccumulationScheduler.
struct AccumulationOptions {
  AccumulationSchedule scheduling{AccumulationSchedule::Steps{}};
};

/// Of ModelSummary.
struct SummaryOptions {
  int max_depth = 1;
};

/// Of LearningRateFinder: Lightning's names, which differ from those of the Tuner.
struct RateFinderOptions {
  LrFindOptions search = {};
};

void describe(OptionVisitor& visitor, AccumulationOptions& options);
void describe(OptionVisitor& visitor, SummaryOptions& options);
void describe(OptionVisitor& visitor, RateFinderOptions& options);

/// A number with a point is a fraction: 1.0 is all.
template <>
struct OptionType<std::variant<std::int64_t, double>> {
  using Value = std::variant<std::int64_t, double>;
  static Expected<Value> parse(std::string_view text) {
    if (const auto whole = OptionType<std::int64_t>::parse(text)) return Value(*whole);
    if (const auto fraction = OptionType<double>::parse(text)) return Value(*fraction);
    return Unexpected{accepted()};
  }
  static std::string print(const Value& value) {
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return OptionType<std::int64_t>::print(*whole);
    return OptionType<double>::print(std::get<double>(value));
  }
  static std::string accepted() { return "an integer, or a fraction in 0.0..1.0"; }
  static std::string type() { return "int or float"; }
};

}  // namespace lockstep
