#include "optim/refuse.h"

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

}  // namespace lockstep::detail
