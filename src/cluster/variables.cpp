#include "cluster/variables.h"

#include <charconv>
#include <cstdint>
#include <utility>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "base/sockets.h"

namespace lockstep::cluster {
namespace {

std::string accepted(const IntVariable& variable) {
  std::string text = "an integer >= " + std::to_string(variable.min);
  if (variable.max == kNoLimit) return text;
  text += " and <= " + std::to_string(variable.max);
  if (!variable.max_name.empty()) text += " (" + std::string(variable.max_name) + ")";
  return text;
}

/// @param text the value of the variable; none: it is not set
[[noreturn]] void refuse(const std::string& name, const Source& set_by, std::string expected,
                         const std::optional<std::string>& text) {
  throw ConfigError("cluster",
                    {.what = "environment variable " + name,
                     .expected = std::move(expected),
                     .got = text ? "\"" + *text + "\"" : "unset",
                     .hint = "it is set by " + std::string(set_by.name) + (text ? "" : or_unset(set_by))});
}

[[noreturn]] void refuse(const IntVariable& variable, const std::optional<std::string>& text) {
  refuse(variable.name, variable.set_by, accepted(variable), text);
}

int parse(const IntVariable& variable, const std::string& text) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = status == std::errc{} && end == text.data() + text.size();
  if (!whole || value < variable.min || value > variable.max) refuse(variable, text);
  return value;
}

}  // namespace

std::string or_unset(const Source& source) {
  if (source.chosen_by.empty() || !is_set(std::string(source.chosen_by))) return "";
  return "; unset " + std::string(source.chosen_by) + " where " + std::string(source.name) +
         " has not started this process";
}

bool is_set(const std::string& name) { return env::get(name).has_value(); }

int read_int(const IntVariable& variable, int fallback) {
  const auto text = env::get(variable.name);
  return text ? parse(variable, *text) : fallback;
}

int require_int(const IntVariable& variable) {
  const auto text = env::get(variable.name);
  if (!text) refuse(variable, text);
  return parse(variable, *text);
}

std::optional<int> read_local_world_size(const Source& set_by) {
  if (!is_set("LOCAL_WORLD_SIZE")) return std::nullopt;
  return require_int({.name = "LOCAL_WORLD_SIZE", .set_by = set_by, .min = 1, .max = kMaxRanks});
}

std::string require_address(const Source& set_by) {
  const auto text = env::get("MASTER_ADDR");
  if (text && !text->empty()) return without_brackets(*text);
  refuse("MASTER_ADDR", set_by, "a host name or address", text);
}

std::string read_address(const Source& set_by, const std::string& fallback) {
  return is_set("MASTER_ADDR") ? require_address(set_by) : fallback;
}

int require_port(const Source& set_by) {
  return require_int({.name = "MASTER_PORT", .set_by = set_by, .min = 1, .max = kMaxPort});
}

int read_port(const Source& set_by, int fallback) {
  return is_set("MASTER_PORT") ? require_port(set_by) : fallback;
}

}  // namespace lockstep::cluster
