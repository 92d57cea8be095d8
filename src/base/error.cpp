#include <lockstep/base/error.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <vector>

namespace lockstep {
namespace {

std::string error_text(std::string_view module, const ErrorParts& parts) {
  std::string text = "[" + std::string(module) + "] " + parts.what;
  if (!parts.expected.empty()) text += "; expected " + parts.expected;
  if (!parts.got.empty()) text += "; got " + parts.got;
  if (!parts.where.empty()) text += "; at " + parts.where;
  if (!parts.hint.empty()) text += "; " + parts.hint;
  return text;
}

}  // namespace

Error::Error(std::string_view module, const ErrorParts& parts)
    : std::runtime_error(error_text(module, parts)) {}

// Out of line, so that each class has one type_info in one library and can be caught across them.
Error::~Error() = default;
ConfigError::~ConfigError() = default;
DataError::~DataError() = default;
IoError::~IoError() = default;
CheckpointError::~CheckpointError() = default;
CommError::CommError(std::string_view module, const ErrorParts& parts, std::vector<int> ranks)
    : Error(module, parts), ranks_(std::make_shared<const std::vector<int>>(std::move(ranks))) {}
CommError::~CommError() = default;
PeerLost::~PeerLost() = default;
Timeout::~Timeout() = default;
CollectiveMismatch::~CollectiveMismatch() = default;

namespace {

char folded(char letter) {
  return letter == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
}

std::string folded(std::string_view name) {
  std::string result(name);
  std::transform(result.begin(), result.end(), result.begin(), [](char letter) { return folded(letter); });
  return result;
}

// Damerau-Levenshtein distance (optimal string alignment), three rows at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

constexpr std::size_t kShortestPrefix = 3;

// The shortest of `known` that goes on where `wanted` ends, within the same part of a dotted key.
std::optional<std::string> continued(const std::string& wanted, std::span<const std::string> known) {
  std::optional<std::string> shortest;
  if (wanted.size() - (wanted.rfind('.') + 1) < kShortestPrefix) return shortest;
  for (const auto& candidate : known) {
    const bool goes_on = candidate.size() > wanted.size() && folded(candidate).starts_with(wanted) &&
                         candidate.find('.', wanted.size()) == std::string::npos;
    if (goes_on && (!shortest || candidate.size() < shortest->size())) shortest = candidate;
  }
  return shortest;
}

constexpr std::size_t kLongestName = 200;  // longer names are not compared, which bounds the work

std::string_view last_part(std::string_view key) {
  const auto dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> known) {
  if (name.empty() || name.size() > kLongestName) return std::nullopt;
  const auto wanted = folded(name);
  std::size_t best = std::max<std::size_t>(2, name.size() / 3) + 1;
  std::optional<std::string> nearest;
  for (const auto& candidate : known) {
    const auto distance = edit_distance(wanted, folded(candidate));
    if (distance >= best || distance >= candidate.size()) continue;
    best = distance;
    nearest = candidate;
  }
  if (best <= 1) return nearest;
  const auto longer = continued(wanted, known);
  return longer ? longer : nearest;
}

std::optional<std::string> nearest_key(std::string_view key, std::span<const std::string> known) {
  if (auto whole = nearest_name(key, known)) return whole;
  std::vector<std::string> parts;
  for (const auto& candidate : known) parts.emplace_back(last_part(candidate));
  const auto part = nearest_name(last_part(key), parts);
  if (!part) return std::nullopt;
  return known[static_cast<std::size_t>(std::find(parts.begin(), parts.end(), *part) - parts.begin())];
}

std::string did_you_mean(const std::optional<std::string>& name, std::string_view prefix) {
  return name ? "did you mean " + std::string(prefix) + *name + "?" : "";
}

}  // namespace lockstep
