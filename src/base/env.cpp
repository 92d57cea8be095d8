#include <lockstep/base/env.h>

#include <charconv>
#include <cstdlib>

#include <lockstep/base/error.h>

extern char** environ;

namespace lockstep::env {
namespace {

std::int64_t parse_int(const std::string& name, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size() || text.empty()) {
    throw ConfigError("env", {.what = "environment variable " + name,
                              .expected = "an integer",
                              .got = "\"" + text + "\"",
                              .where = "",
                              .hint = ""});
  }
  return value;
}

}  // namespace

std::optional<std::string> get(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

std::int64_t get_int(const std::string& name, std::int64_t fallback) {
  const auto text = get(name);
  return text ? parse_int(name, *text) : fallback;
}

std::int64_t require_int(const std::string& name) {
  const auto text = get(name);
  if (!text) {
    throw ConfigError("env", {.what = "environment variable " + name,
                              .expected = "an integer",
                              .got = "unset",
                              .where = "",
                              .hint = ""});
  }
  return parse_int(name, *text);
}

void set(const std::string& name, const std::string& value) { setenv(name.c_str(), value.c_str(), 1); }

void unset(const std::string& name) { unsetenv(name.c_str()); }

std::map<std::string, std::string> with_prefix(std::string_view prefix) {
  std::map<std::string, std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const auto equals = line.find('=');
    if (line.starts_with(prefix) && equals != std::string_view::npos) {
      found.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
  }
  return found;
}

}  // namespace lockstep::env
