#include "rdzv_conf.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>

#include "base/format.h"
#include "refusal.h"

namespace {

using lockstep::ConfigError;
using lockstep::RendezvousOptions;
using Setter = std::function<void(RendezvousOptions&, const std::string& value)>;

constexpr double kMostSeconds = 1e6;

[[noreturn]] void refuse_key(const std::string& key, const std::string& expected, const std::string& text) {
  refuse_value("--rdzv-conf " + key, expected, text);
}

template <class T>
Setter number(const std::string& key, T RendezvousOptions::*field) {
  return [=](RendezvousOptions& options, const std::string& value) {
    const auto parsed = lockstep::OptionType<int>::parse(value);
    if (!parsed || *parsed < 1) refuse_key(key, "a number >= 1", value);
    options.*field = *parsed;
  };
}

template <class Duration>  // or an optional one
Setter seconds(const std::string& key, Duration RendezvousOptions::*field) {
  return [=](RendezvousOptions& options, const std::string& value) {
    const auto parsed = lockstep::OptionType<double>::parse(value);
    if (!parsed || !(*parsed >= 0.001 && *parsed <= kMostSeconds))
      refuse_key(key, "0.001 to 1000000 seconds", value);
    options.*field = std::chrono::milliseconds(static_cast<std::int64_t>(*parsed * 1000));
  };
}

void set_is_host(RendezvousOptions& options, const std::string& value) {
  std::string text = value;
  std::ranges::transform(text, text.begin(), [](unsigned char letter) { return std::tolower(letter); });
  if (text != "true" && text != "false" && text != "1" && text != "0")
    refuse_key("is_host", "true or false", value);
  options.is_host = text == "true" || text == "1";
}

void set_store_type(RendezvousOptions&, const std::string& value) {
  if (value != "tcp") refuse_key("store_type", "tcp", value);
}

void read_token(RendezvousOptions& options, const std::string& file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) refuse_key("token_file", "a file that can be read, and is not empty", file);
  options.token = text.str();
  while (!options.token.empty() &&
         std::string_view("\r\n").find(options.token.back()) != std::string_view::npos)
    options.token.pop_back();
  if (options.token.empty()) refuse_key("token_file", "a file that can be read, and is not empty", file);
  if (options.token.size() > lockstep::kMostTokenBytes)
    refuse_key("token_file", "a token of at most " + std::to_string(lockstep::kMostTokenBytes) + " bytes",
               file + ": " + std::to_string(options.token.size()) + " bytes");
  struct stat status {};
  if (::stat(file.c_str(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    lockstep::log_warning("other users may read the token in " + file + ": chmod 600");
}

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> all{
      {"close_timeout", seconds("close_timeout", &RendezvousOptions::close_timeout)},
      {"first_call_timeout", seconds("first_call_timeout", &RendezvousOptions::first_call_timeout)},
      {"is_host", set_is_host},
      {"join_timeout", seconds("join_timeout", &RendezvousOptions::join_timeout)},
      {"keep_alive_interval", seconds("keep_alive_interval", &RendezvousOptions::keep_alive_interval)},
      {"keep_alive_max_attempt",
       number("keep_alive_max_attempt", &RendezvousOptions::keep_alive_max_attempt)},
      {"last_call_timeout", seconds("last_call_timeout", &RendezvousOptions::last_call_timeout)},
      {"read_timeout", seconds("read_timeout", &RendezvousOptions::read_timeout)},
      {"store_type", set_store_type},
      {"timeout", seconds("timeout", &RendezvousOptions::join_timeout)},  // of torchrun's static rendezvous
      {"token_file", read_token},
  };
  return all;
}

std::string accepted_keys() {
  std::string keys;
  for (const auto& [key, setter] : setters()) keys += (keys.empty() ? "" : ", ") + key;
  return keys;
}

// Times of the clock have no room for more.
void check_patience(const RendezvousOptions& options) {
  constexpr double kMostPatience = 1e9;
  const std::chrono::duration<double> interval = options.keep_alive_interval;
  const double patience_s = interval.count() * options.keep_alive_max_attempt;
  if (patience_s <= kMostPatience) return;
  throw ConfigError("run", {.what = "--rdzv-conf keep_alive_interval x keep_alive_max_attempt",
                            .expected = "at most 1000000000 seconds",
                            .got = std::to_string(static_cast<std::int64_t>(interval.count())) + " x " +
                                   std::to_string(options.keep_alive_max_attempt)});
}

// torchrun takes them around keys and values.
std::string without_blanks(const std::string& text) {
  return std::string(lockstep::detail::trimmed(text, " \t"));
}

}  // namespace

void apply_rdzv_conf(const std::string& text, RendezvousOptions& options) {
  std::stringstream pairs(text);
  std::set<std::string> given;
  for (std::string pair; std::getline(pairs, pair, ',');) {
    const auto equals = pair.find('=');
    const auto setter = setters().find(without_blanks(pair.substr(0, equals)));
    if (equals == std::string::npos || setter == setters().end())
      refuse_value("--rdzv-conf", "KEY=VALUE,... with the keys " + accepted_keys(), pair);
    if (!given.insert(setter->first).second) refuse_key(setter->first, "each key once", text);
    setter->second(options, without_blanks(pair.substr(equals + 1)));
  }
  check_patience(options);
}
