// Durations as options: `250ms`, `30s`, `1.5h`, `00:30:00`.
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include <lockstep/base/option_type.h>

namespace lockstep {
namespace {

using std::chrono::milliseconds;

struct Unit {
  std::string_view name;
  std::int64_t ms;
};
constexpr std::array<Unit, 5> kUnits{
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}}};
constexpr double kLongestMs = 1e15;  // 31,000 years: exact in a double, far from overflow

std::optional<double> number_at_start(std::string_view& text) {
  double value = 0;
  const auto [end, status] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (status != std::errc{} || !std::isfinite(value)) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

std::optional<milliseconds> from_ms(double ms) {
  if (std::abs(ms) > kLongestMs) return std::nullopt;
  return milliseconds(std::llround(ms));
}

std::optional<milliseconds> parse_with_unit(std::string_view text) {
  const auto number = number_at_start(text);
  if (!number) return std::nullopt;
  for (const auto& unit : kUnits) {
    if (text == unit.name) return from_ms(*number * static_cast<double>(unit.ms));
  }
  return std::nullopt;
}

// HH:MM:SS or DD:HH:MM:SS, as Lightning's max_time.
std::optional<milliseconds> parse_clock(std::string_view text) {
  std::vector<double> parts;
  while (const auto number = number_at_start(text)) {
    if (*number < 0) return std::nullopt;
    parts.push_back(*number);
    if (text.empty()) break;
    if (!text.starts_with(':')) return std::nullopt;
    text.remove_prefix(1);
  }
  if (!text.empty() || parts.size() < 3 || parts.size() > 4) return std::nullopt;
  double ms = 0;
  const std::size_t first_unit = 4 - parts.size();
  for (std::size_t i = 0; i < parts.size(); ++i)
    ms += parts[i] * static_cast<double>(kUnits[first_unit + i].ms);
  return from_ms(ms);
}

}  // namespace

Expected<milliseconds> OptionType<milliseconds>::parse(std::string_view text) {
  const auto value = text.find(':') == std::string_view::npos ? parse_with_unit(text) : parse_clock(text);
  if (!value) return Unexpected{accepted()};
  return *value;
}

std::string OptionType<milliseconds>::print(const milliseconds& value) {
  if (value.count() == 0) return "0s";
  for (const auto& unit : kUnits) {
    if (value.count() % unit.ms == 0) return std::to_string(value.count() / unit.ms) + std::string(unit.name);
  }
  return std::to_string(value.count()) + "ms";
}

std::string OptionType<milliseconds>::accepted() {
  return "a duration such as 250ms, 30s, 5m, 1h or 00:30:00";
}
std::string OptionType<milliseconds>::type() { return "duration"; }

}  // namespace lockstep
