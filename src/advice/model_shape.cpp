// The shape of a model of which only the number of parameters is known.
#include <lockstep/advice/advise.h>

#include <charconv>
#include <cmath>
#include <string>

#include <lockstep/base/error.h>

#include "base/format.h"

namespace lockstep {
namespace {

constexpr double kWidthPerLayer = 64;    // of GPT-2 and GPT-3
constexpr double kMatricesOfBlock = 12;  // of width x width: 4 of attention, 8 of the part after it
constexpr double kFeaturesOfBlock = 16;  // of width: rows and columns of these

void require_positive(const char* what, std::int64_t value) {
  if (value >= 1) return;
  throw ConfigError("advise", {.what = what, .expected = "at least 1", .got = std::to_string(value)});
}

std::int64_t rounded(double value) { return std::llround(value); }

}  // namespace

ModelSize transformer_of(std::int64_t parameters, std::optional<std::int64_t> layers) {
  require_positive("parameters of the model", parameters);
  if (layers) require_positive("layers of the model", *layers);
  if (layers && *layers > parameters)
    throw ConfigError("advise", {.what = "layers of the model",
                                 .expected = "at most its parameters, " + std::to_string(parameters),
                                 .got = std::to_string(*layers)});
  const auto all = static_cast<double>(parameters);
  const double width = layers ? std::sqrt(all / (kMatricesOfBlock * static_cast<double>(*layers)))
                              : std::cbrt(all * kWidthPerLayer / kMatricesOfBlock);
  const auto units = layers.value_or(std::max<std::int64_t>(1, rounded(width / kWidthPerLayer)));
  const auto unit = (parameters + units - 1) / units;
  return {.parameters = parameters,
          .largest_layer = std::max<std::int64_t>(1, unit / 3),
          .units = units,
          .largest_unit = unit,
          .in_units = parameters,
          .features = rounded(kFeaturesOfBlock * width * static_cast<double>(units))};
}

Expected<std::int64_t> parse_memory_size(std::string_view text) {
  constexpr const char* kAccepted = "a size > 0, such as 80GiB, 80GB, 512MiB or 1000000 (bytes)";
  constexpr std::string_view kPrefixes = "kmgt";
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return Unexpected{kAccepted};
  const auto unit = lower_case(detail::trimmed({end, text.data() + text.size()}));
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const auto power = kPrefixes.find(unit.front());
    const auto rest = unit.substr(1);
    if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib"))
      return Unexpected{kAccepted};
    factor = std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  const double bytes = std::floor(number * factor);
  if (!(bytes >= 1) || bytes >= kBeyondInt64) return Unexpected{kAccepted};
  return static_cast<std::int64_t>(bytes);
}

}  // namespace lockstep
