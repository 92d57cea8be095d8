#include <lockstep/train/batch_limit.h>

#include <algorithm>
#include <cmath>

#include <lockstep/base/error.h>
#include <lockstep/data/any_loader.h>

namespace lockstep {

namespace {

constexpr double kMostCounted = 1e15;  // a double tells whole numbers below apart

// 1.0 is all of them.
bool is_number_of_batches(double number) {
  return number > 1 && number <= kMostCounted && std::floor(number) == number;
}

}  // namespace

BatchLimit::BatchLimit(double fraction) : value_(fraction) {
  if (is_number_of_batches(fraction)) value_ = static_cast<std::int64_t>(fraction);
}

Expected<BatchLimit> BatchLimit::parse(std::string_view text) {
  if (const auto batches = OptionType<std::int64_t>::parse(text)) {
    if (*batches < 0) return Unexpected{OptionType<BatchLimit>::accepted()};
    return BatchLimit(*batches);
  }
  const auto number = OptionType<double>::parse(text);
  if (!number) return Unexpected{OptionType<BatchLimit>::accepted()};
  const BatchLimit limit(*number);
  const auto* fraction = std::get_if<double>(&limit.value_);
  if (fraction && !(*fraction >= 0 && *fraction <= 1)) return Unexpected{OptionType<BatchLimit>::accepted()};
  return limit;
}

bool BatchLimit::is_zero() const {
  return std::visit([](auto value) { return value == 0; }, value_);
}

std::string BatchLimit::print() const {
  if (const auto* batches = std::get_if<std::int64_t>(&value_)) return std::to_string(*batches);
  return OptionType<double>::print(std::get<double>(value_));  // 1.0, which is not 1
}

std::int64_t BatchLimit::apply(std::int64_t available, std::string_view option) const {
  const auto refuse = [&](std::string expected) {
    throw ConfigError("train", {.what = std::string(option),
                                .expected = std::move(expected),
                                .got = print(),
                                .where = "",
                                .hint = ""});
  };
  if (const auto* batches = std::get_if<std::int64_t>(&value_)) {
    if (*batches < 0) refuse(">= 0");
    return std::min(available, *batches);
  }
  const double fraction = std::get<double>(value_);
  if (!(fraction >= 0 && fraction <= 1)) refuse("a fraction in 0.0..1.0, or an integer");
  if (available == kUnknownLength) {
    if (fraction == 1 || fraction == 0) return fraction == 1 ? available : 0;
    refuse("1.0 or a number of batches, since the data do not say how many they have");
  }
  const auto batches = static_cast<std::int64_t>(static_cast<double>(available) * fraction);
  if (batches == 0 && fraction > 0 && available > 0) {
    refuse("at least one batch: >= " + std::to_string(1.0 / static_cast<double>(available)));
  }
  return batches;
}

}  // namespace lockstep
