#include <lockstep/train/batch_limit.h>

#include <algorithm>
#include <charconv>

#include <lockstep/base/error.h>
#include <lockstep/data/any_loader.h>

namespace lockstep {
namespace {

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

Expected<BatchLimit> BatchLimit::parse(std::string_view text) {
  if (const auto batches = parse_number<std::int64_t>(text)) {
    if (*batches < 0) return Unexpected{OptionType<BatchLimit>::accepted()};
    return BatchLimit(*batches);
  }
  const auto fraction = parse_number<double>(text);
  if (!fraction) return Unexpected{OptionType<BatchLimit>::accepted()};
  if (!(*fraction >= 0 && *fraction <= 1)) return Unexpected{OptionType<BatchLimit>::accepted()};
  return BatchLimit(*fraction);
}

bool BatchLimit::is_zero() const {
  return std::visit([](auto value) { return value == 0; }, value_);
}

std::string BatchLimit::print() const {
  if (const auto* batches = std::get_if<std::int64_t>(&value_)) return std::to_string(*batches);
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, std::get<double>(value_)).ptr;
  const std::string text(digits, end);
  // "1" would read back as one batch.
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
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
