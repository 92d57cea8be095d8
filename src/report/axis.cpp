#include "report/axis.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep::detail {
namespace {

// 1, 2 or 5 times a power of ten, at least `wanted`.
double round_distance(double wanted) {
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= wanted * (1 - 1e-9)) return digit * power;
  }
  return 10 * power;
}

}  // namespace

Axis Axis::linear(double low, double high) {
  if (high - low > 1e-12 * std::max(std::abs(low), std::abs(high)) && std::isfinite(high - low))
    return {low, high, false};
  const double room = std::max(0.5, std::abs(low) / 10);
  return {low - room, low + room, false};
}

Axis Axis::of_values(double low, double high, bool may_be_log) {
  constexpr double kRoom = 0.05;
  // The ratio of two doubles, and what room is left around them, need not be a double.
  if (may_be_log && low > 0 && high / low > 1000 && std::isfinite(high / low)) {
    const double factor = std::pow(high / low, kRoom);
    if (low / factor > 0 && std::isfinite(high * factor)) return {low / factor, high * factor, true};
  }
  const auto tight = linear(low, high);
  const double room = kRoom * (tight.high_ - tight.low_);
  return linear(tight.low_ - room, tight.high_ + room);
}

double Axis::place(double value) const {
  if (is_log_) return std::log(value / low_) / std::log(high_ / low_);
  return (value - low_) / (high_ - low_);
}

std::vector<Tick> Axis::ticks(int wanted) const { return is_log_ ? log_ticks(wanted) : linear_ticks(wanted); }

std::vector<Tick> Axis::linear_ticks(int wanted) const {
  const double distance = round_distance((high_ - low_) / wanted);
  const int decimals = std::clamp(static_cast<int>(-std::floor(std::log10(distance))), 0, 12);
  const double largest = std::max(std::abs(low_), std::abs(high_));
  const int digits = std::clamp(static_cast<int>(std::ceil(std::log10(largest / distance))) + 1, 2, 15);
  const bool is_plain = largest < 1e4 && distance >= 1e-4;
  std::vector<Tick> ticks;
  for (double number = std::ceil(low_ / distance);
       number * distance <= high_ + 1e-9 * distance && ticks.size() < 100; ++number) {
    const double value = number * distance + 0.0;  // no -0
    ticks.push_back(
        {.place = place(value),
         .label = is_plain ? fmt::format("{:.{}f}", value, decimals) : short_number(value, digits)});
  }
  return ticks;
}

std::vector<Tick> Axis::log_ticks(int wanted) const {
  const double first = std::ceil(std::log10(low_)), last = std::floor(std::log10(high_));
  const double distance = std::max(1.0, std::ceil((last - first) / wanted));
  std::vector<Tick> ticks;
  for (double power = first; power <= last; power += distance) {
    const double value = std::pow(10, power);
    ticks.push_back({.place = place(value), .label = short_number(value)});
  }
  return ticks;
}

std::string short_number(double number, int digits) {
  constexpr std::pair<double, char> kUnits[] = {{1e9, 'G'}, {1e6, 'M'}, {1e4, 'k'}};
  const double size = std::abs(number);
  for (const auto& [unit, letter] : kUnits) {
    if (size < unit || size >= 1e13) continue;
    const double divisor = letter == 'k' ? 1e3 : unit;
    return fmt::format("{:.{}g}{}", number / divisor, digits, letter);
  }
  return fmt::format("{:.{}g}", number, digits);
}

}  // namespace lockstep::detail
