#include "optim/refuse.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace lockstep::detail {

void refuse(std::string what, std::string expected, std::string got, std::string hint) {
  throw ConfigError("optim", {.what = std::move(what),
                              .expected = std::move(expected),
                              .got = std::move(got),
                              .where = "",
                              .hint = std::move(hint)});
}

void require(bool allowed, const std::string& field, double value, const std::string& expected) {
  if (allowed) return;
  std::ostringstream got;
  got << value;
  refuse(field + " is out of range", expected, got.str());
}

void require_not_negative(const std::string& field, double value) {
  require(std::isfinite(value) && value >= 0.0, field, value, "a finite number >= 0");
}

void require_share(const std::string& field, double value) {
  require(value >= 0.0 && value <= 1.0, field, value, "a number in [0, 1]");
}

std::string some_of(std::span<const std::string> names) {
  constexpr std::size_t kMost = 5;
  std::string text;
  for (const auto& name : names.first(std::min(kMost, names.size())))
    text += (text.empty() ? "" : ", ") + name;
  return names.size() <= kMost ? text : text + ", ... (" + std::to_string(names.size()) + ")";
}

}  // namespace lockstep::detail
