// The process: its environment, which no other part of the library reads by getenv, the time of its start,
// and its memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep::env {

/// The value of `name`, or nothing when it is unset.
LOCKSTEP_API std::optional<std::string> get(const std::string& name);

/// The value of `name` as an integer; `fallback` when it is unset.
/// @throws ConfigError naming variable and value when it is set but is no integer
LOCKSTEP_API std::int64_t get_int(const std::string& name, std::int64_t fallback);

/// As get_int, for a variable that must be set.
/// @throws ConfigError naming the variable when it is unset or is no integer
LOCKSTEP_API std::int64_t require_int(const std::string& name);

/// Sets `name` for this process and its children. Not thread-safe: call before threads start.
LOCKSTEP_API void set(const std::string& name, const std::string& value);

/// Removes `name`. Not thread-safe, as set().
LOCKSTEP_API void unset(const std::string& name);

/// All variables whose name starts with `prefix`, by full name.
LOCKSTEP_API std::map<std::string, std::string> with_prefix(std::string_view prefix);

}  // namespace lockstep::env

namespace lockstep {

/// Time since the run was started: since this process was, or the one that forked or re-executed it
/// (inherited through LOCKSTEP_START_NS, CLOCK_BOOTTIME nanoseconds). Resolution 10 ms.
LOCKSTEP_API std::chrono::nanoseconds time_since_start();

/// Makes the start of this process the start of the run for its children.
LOCKSTEP_API void publish_start();

/// The largest resident set that this process has had, in bytes.
LOCKSTEP_API std::int64_t peak_rss_bytes();

}  // namespace lockstep
