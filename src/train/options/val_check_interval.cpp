#include <lockstep/train/val_check_interval.h>

namespace lockstep {

using std::chrono::milliseconds;

Expected<ValCheckInterval> ValCheckInterval::parse(std::string_view text) {
  const Unexpected refused{OptionType<ValCheckInterval>::accepted()};
  if (const auto batches = OptionType<std::int64_t>::parse(text)) {
    if (*batches < 1) return refused;
    return ValCheckInterval(*batches);
  }
  if (const auto fraction = OptionType<double>::parse(text)) {
    if (!(*fraction > 0 && *fraction <= 1)) return refused;
    return ValCheckInterval(*fraction);
  }
  if (const auto time = OptionType<milliseconds>::parse(text)) {
    if (time->count() <= 0) return refused;
    return ValCheckInterval(*time);
  }
  return refused;
}

std::string ValCheckInterval::print() const {
  if (const auto* batches = std::get_if<std::int64_t>(&value_)) return std::to_string(*batches);
  if (const auto* time = std::get_if<milliseconds>(&value_)) return OptionType<milliseconds>::print(*time);
  return OptionType<double>::print(std::get<double>(value_));  // 1.0, which is not 1
}

}  // namespace lockstep
