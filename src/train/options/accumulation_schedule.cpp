#include <lockstep/train/accumulation_schedule.h>

#include <iterator>
#include <limits>

#include <lockstep/base/option_codec.h>

namespace lockstep {
int AccumulationSchedule::at(std::int64_t epoch) const {
  const auto next = by_epoch_.upper_bound(epoch);
  return next == by_epoch_.begin() ? 1 : std::prev(next)->second;
}

std::int64_t AccumulationSchedule::next_change(std::int64_t epoch) const {
  const auto next = by_epoch_.upper_bound(epoch);
  return next == by_epoch_.end() ? std::numeric_limits<std::int64_t>::max() : next->first;
}

Expected<AccumulationSchedule> AccumulationSchedule::parse(std::string_view text) {
  const Unexpected refused{OptionType<AccumulationSchedule>::accepted()};
  if (const auto number = OptionType<int>::parse(text)) {
    if (*number < 1) return refused;
    return AccumulationSchedule(*number);
  }
  if (text.starts_with('{') && text.ends_with('}')) text = text.substr(1, text.size() - 2);
  Steps by_epoch;
  for (const auto& item : detail::items_of({.text = std::string(text)})) {
    const std::string& pair = item.text;
    const auto colon = pair.find(':');
    if (colon == std::string::npos) return refused;
    const auto value = pair.find_first_not_of(' ', colon + 1);
    if (value == std::string::npos) return refused;
    const auto epoch = OptionType<std::int64_t>::parse(std::string_view(pair).substr(0, colon));
    const auto number = OptionType<int>::parse(std::string_view(pair).substr(value));
    if (!epoch || !number || *epoch < 0 || *number < 1) return refused;
    if (!by_epoch.emplace(*epoch, *number).second) return refused;
  }
  if (by_epoch.empty()) return refused;
  return AccumulationSchedule(std::move(by_epoch));
}

std::string AccumulationSchedule::print() const {
  if (is_constant()) return std::to_string(by_epoch_.begin()->second);
  std::string text;
  for (const auto& [epoch, number] : by_epoch_)
    text += (text.empty() ? "" : ", ") + std::to_string(epoch) + ": " + std::to_string(number);
  return "{" + text + "}";
}

}  // namespace lockstep
