#include "base/diagnoses.h"

#include <charconv>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "base/format.h"

namespace lockstep::detail {
namespace {

constexpr auto kVariable = "LOCKSTEP_DIAGNOSES";
constexpr std::string_view kWaitsAfter = "waits=";

[[noreturn]] void refuse_word(std::string_view word) {
  throw ConfigError("base",
                    {.what = std::string("environment variable ") + kVariable,
                     .expected = "all, none, or some of memory, data, waits and waits=SECONDS with commas "
                                 "between",
                     .got = '"' + std::string(word) + '"'});
}

std::chrono::milliseconds parse_seconds(std::string_view word) {
  const auto digits = word.substr(kWaitsAfter.size());
  double seconds = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  if (!is_number || !(seconds > 0) || seconds > 1e9) refuse_word(word);
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

void add_word(Diagnoses& chosen, std::string_view word) {
  if (word == "memory") {
    chosen.memory = true;
  } else if (word == "data") {
    chosen.data = true;
  } else if (word == "waits") {
    chosen.waits = Diagnoses{}.waits;
  } else if (word.starts_with(kWaitsAfter)) {
    chosen.waits = parse_seconds(word);
  } else {
    refuse_word(word);
  }
}

}  // namespace

Diagnoses parse_diagnoses(std::string_view text) {
  if (trimmed(text) == "all") return {};
  Diagnoses chosen{.memory = false, .data = false, .waits = std::nullopt};
  if (trimmed(text) == "none") return chosen;
  while (true) {
    const auto comma = text.find(',');
    add_word(chosen, trimmed(text.substr(0, comma)));
    if (comma == std::string_view::npos) return chosen;
    text.remove_prefix(comma + 1);
  }
}

const Diagnoses& diagnoses() {
  static const Diagnoses chosen = parse_diagnoses(env::get(kVariable).value_or("all"));
  return chosen;
}

}  // namespace lockstep::detail
