#include "report/selection.h"

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/base/nearest.h>

#include "formats/in_quotes.h"

namespace lockstep::detail {

std::vector<std::string> selected_names(std::span<const ComparedRun> runs,
                                        std::span<const std::string> wanted) {
  auto names = curve_names(runs);
  if (wanted.empty()) return names;
  for (const auto& name : wanted) {
    if (std::ranges::find(names, name) != names.end()) continue;
    throw ConfigError("report", {.what = "no run has a metric " + in_quotes(name),
                                 .expected = "a column of metrics.csv",
                                 .hint = did_you_mean(nearest_name(name, names))});
  }
  return {wanted.begin(), wanted.end()};
}

}  // namespace lockstep::detail
