// What a run looks for in itself to say what to do: LOCKSTEP_DIAGNOSES.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// What is looked for. docs/troubleshooting.md says what each of them tells.
struct Diagnoses {
  bool memory = true;  ///< where a rank's memory was, when it ran out
  bool data = true;    ///< a rank that waits for data
  /// After which time a rank says for whom it waits; nothing: never.
  std::optional<std::chrono::milliseconds> waits = std::chrono::seconds(30);

  bool operator==(const Diagnoses&) const = default;
};

/// Those of a list such as "memory,waits=5": the named ones alone, `waits` after so many seconds; "all";
/// "none".
/// @throws ConfigError naming the word
LOCKSTEP_API Diagnoses parse_diagnoses(std::string_view text);

/// Those of the environment variable LOCKSTEP_DIAGNOSES, read once; all of them unless it is set. @throws
/// ConfigError
LOCKSTEP_API const Diagnoses& diagnoses();

}  // namespace lockstep::detail
