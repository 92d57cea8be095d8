#include "device/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/trimmed.h"

namespace lockstep::detail {
namespace {

std::optional<int> by_ordinal(std::string_view entry, std::size_t count) {
  int ordinal = -1;
  const auto [end, status] = std::from_chars(entry.data(), entry.data() + entry.size(), ordinal);
  const bool is_ordinal = status == std::errc{} && end == entry.data() + entry.size();
  if (!is_ordinal || ordinal < 0 || static_cast<std::size_t>(ordinal) >= count) return std::nullopt;
  return ordinal;
}

std::optional<int> by_uuid(std::string_view entry, const std::vector<std::string>& uuids) {
  const auto matches = [&](const std::string& uuid) { return uuid.starts_with(entry); };
  if (!entry.starts_with("GPU-") || std::ranges::count_if(uuids, matches) != 1) return std::nullopt;
  return static_cast<int>(std::ranges::find_if(uuids, matches) - uuids.begin());
}

}  // namespace

int count_visible(const std::optional<std::string>& variable, const std::vector<std::string>& uuids) {
  if (!variable) return static_cast<int>(uuids.size());
  std::set<int> seen;
  for (std::string_view rest = *variable; !rest.empty();) {
    const auto comma = std::min(rest.find(','), rest.size());
    const auto entry = trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const auto device = entry.starts_with("GPU-") ? by_uuid(entry, uuids) : by_ordinal(entry, uuids.size());
    if (!device) break;
    if (!seen.insert(*device).second) return 0;
  }
  return static_cast<int>(seen.size());
}

}  // namespace lockstep::detail
