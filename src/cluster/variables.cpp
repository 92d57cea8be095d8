#include "cluster/variables.h"

#include <charconv>
#include <cstdint>
#include <iterator>
#include <utility>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "base/host_name.h"
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

template <class Int>
Int parse(const IntVariable& variable, const std::string& text) {
  Int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = status == std::errc{} && end == text.data() + text.size();
  const bool is_above = variable.max != kNoLimit && value > variable.max;
  if (!whole || value < variable.min || is_above) refuse(variable, text);
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
  return text ? parse<int>(variable, *text) : fallback;
}

int require_int(const IntVariable& variable) {
  const auto text = env::get(variable.name);
  if (!text) refuse(variable, text);
  return parse<int>(variable, *text);
}

std::int64_t require_int64(const IntVariable& variable) {
  const auto text = env::get(variable.name);
  if (!text) refuse(variable, text);
  return parse<std::int64_t>(variable, *text);
}

std::optional<int> read_local_world_size(const Source& set_by) {
  if (!is_set("LOCAL_WORLD_SIZE")) return std::nullopt;
  return require_int({.name = "LOCAL_WORLD_SIZE", .set_by = set_by, .min = 1, .max = kMaxRanks});
}

std::string require_address(const Source& set_by) {
  const auto text = env::get("MASTER_ADDR");
  if (text && may_be_host(without_brackets(*text))) return without_brackets(*text);
  refuse("MASTER_ADDR", set_by, kHostForm, text);
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

namespace {

constexpr std::size_t kMaxHosts = kMaxRanks;
constexpr std::size_t kMaxName = 255;  // the limit of DNS and of gethostname(); with kMaxHosts it bounds the
                                       // memory that a short list can take

struct NodeList {
  std::string_view name;
  std::string_view text;

  [[noreturn]] void refuse(std::string_view part) const {
    throw ConfigError("cluster", {.what = "environment variable " + std::string(name),
                                  .expected = "a list of hosts such as node1,node[3-5,08]",
                                  .got = "\"" + std::string(text) + "\", at \"" + std::string(part) + "\"",
                                  .hint = "it is set by the scheduler"});
  }
};

bool is_separator(char character) {
  return std::string_view(", \t\n").find(character) != std::string_view::npos;
}

// Calls `take` with each part of `text` between separators outside of brackets.
template <class Take>
void for_each_part(const NodeList& list, std::string_view text, Take take) {
  std::size_t begin = 0;
  bool is_inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char character = text[i];
    if (character == (is_inside ? '[' : ']')) list.refuse(text.substr(begin));
    if (character == '[' || character == ']') is_inside = !is_inside;
    if (is_inside || !is_separator(character)) continue;
    if (i > begin) take(text.substr(begin, i - begin));
    begin = i + 1;
  }
  if (is_inside) list.refuse(text.substr(begin));
  if (begin < text.size()) take(text.substr(begin));
}

std::uint64_t number_of(const NodeList& list, std::string_view digits, std::string_view part) {
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || status != std::errc{} || end != digits.data() + digits.size()) list.refuse(part);
  return value;
}

// Appends the texts that replace the bracket for `1`, `089` or `5-9`.
void append_range(const NodeList& list, std::string_view range, std::vector<std::string>& values) {
  const auto dash = range.find('-');
  const auto low = range.substr(0, dash);
  const auto high = dash == std::string_view::npos ? low : range.substr(dash + 1);
  const auto first = number_of(list, low, range), last = number_of(list, high, range);
  if (low.size() > kMaxName || last < first || last - first >= kMaxHosts - values.size()) list.refuse(range);
  for (std::uint64_t step = 0; step <= last - first;
       ++step) {  // comparing with `last` would never end for 2^64 - 1
    auto digits = std::to_string(first + step);
    if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
    values.push_back(std::move(digits));
  }
}

std::vector<std::string> expand_host(const NodeList& list, std::string_view host) {
  std::vector<std::string> names = {""};
  while (!host.empty()) {
    const auto open = host.find('[');
    for (auto& name : names) {
      name += host.substr(0, open);
      if (name.size() > kMaxName) list.refuse(host.substr(0, kMaxName));
    }
    if (open == std::string_view::npos) break;
    const auto close = host.find(']');
    std::vector<std::string> values;
    for_each_part(list, host.substr(open + 1, close - open - 1),
                  [&](std::string_view range) { append_range(list, range, values); });
    if (values.empty() || names.size() * values.size() > kMaxHosts) list.refuse(host);
    std::vector<std::string> longer;
    for (const auto& name : names)
      for (const auto& value : values) longer.push_back(name + value);
    names = std::move(longer);
    host.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view name, std::string_view text) {
  const NodeList list{.name = name, .text = text};
  std::vector<std::string> hosts;
  for_each_part(list, text, [&](std::string_view part) {
    auto names = expand_host(list, part);
    if (hosts.size() + names.size() > kMaxHosts) list.refuse(part);
    hosts.insert(hosts.end(), std::move_iterator(names.begin()), std::move_iterator(names.end()));
  });
  if (hosts.empty()) list.refuse(text);
  return hosts;
}

}  // namespace lockstep::cluster
