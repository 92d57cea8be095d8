#include <lockstep/launch/launch_options.h>

namespace lockstep {
namespace {

constexpr const char* kAccepted = "0 (none), 1 (stdout), 2 (stderr) or 3 (both), or LOCAL_RANK:NUMBER,...";

Expected<int> number_of(std::string_view text, int max) {
  const auto number = OptionType<int>::parse(text);
  if (!number || *number < 0 || *number > max) return Unexpected{kAccepted};
  return *number;
}

}  // namespace

Expected<StreamChoice> StreamChoice::parse(std::string_view text) {
  constexpr int kBoth = 3, kMaxRank = 1'000'000;
  StreamChoice choice;
  if (text.find(':') == std::string_view::npos) {
    const auto all = number_of(text, kBoth);
    if (!all) return Unexpected{kAccepted};
    choice.all_ = *all;
    return choice;
  }
  for (bool is_over = false; !is_over;) {
    const auto item = text.substr(0, text.find(','));
    const auto colon = item.find(':');
    if (colon == std::string_view::npos) return Unexpected{kAccepted};
    const auto rank = number_of(item.substr(0, colon), kMaxRank),
               streams = number_of(item.substr(colon + 1), kBoth);
    if (!rank || !streams) return Unexpected{kAccepted};
    if (!choice.by_rank_.emplace(*rank, *streams).second)
      return Unexpected{"each local rank once, in LOCAL_RANK:NUMBER,..."};
    is_over = item.size() == text.size();
    text.remove_prefix(is_over ? item.size() : item.size() + 1);
  }
  return choice;
}

int StreamChoice::of(int local_rank) const {
  const auto found = by_rank_.find(local_rank);
  return found == by_rank_.end() ? all_ : found->second;
}

}  // namespace lockstep
