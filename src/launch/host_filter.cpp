#include <algorithm>
#include <set>

#include <lockstep/base/error.h>
#include <lockstep/base/nearest.h>
#include <lockstep/base/option_type.h>
#include <lockstep/launch/host_file.h>

namespace lockstep {
namespace {

struct Filter {
  std::string flag;
  std::string_view text;
};

// One of the parts between `@`.
struct NodeSpec {
  std::size_t host = 0;      // index in the host file
  std::set<int> slots = {};  // empty: all
};

[[noreturn]] void refuse(const Filter& filter, const std::string& what, const std::string& expected,
                         const std::string& hint = {}) {
  throw ConfigError("hosts", {.what = filter.flag + ": " + what,
                              .expected = expected,
                              .got = "\"" + std::string(filter.text) + "\"",
                              .hint = hint});
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::size_t index_of(const std::vector<Host>& hosts, std::string_view name, const Filter& filter) {
  const auto found = std::ranges::find(hosts, name, &Host::name);
  if (found != hosts.end()) return static_cast<std::size_t>(found - hosts.begin());
  std::vector<std::string> known;
  for (const auto& host : hosts) known.push_back(host.name);
  refuse(filter, "host \"" + std::string(name) + "\"", "a host of the host file",
         did_you_mean(nearest_name(name, known)));
}

int slot_of(const Host& host, std::string_view text, const Filter& filter) {
  const auto slot = OptionType<int>::parse(text);
  const bool is_there = slot && std::ranges::find(host.slots, *slot) != host.slots.end();
  if (is_there) return *slot;
  refuse(filter, "slot \"" + std::string(text) + "\" of host " + host.name,
         "one of its slots, 0 to " + std::to_string(host.slots.back()));
}

NodeSpec parse_node(const std::vector<Host>& hosts, std::string_view text, const Filter& filter) {
  const auto colon = text.find(':');
  NodeSpec node{.host = index_of(hosts, text.substr(0, colon), filter)};
  if (colon == std::string_view::npos) return node;
  for (const auto slot : split(text.substr(colon + 1), ','))
    node.slots.insert(slot_of(hosts[node.host], slot, filter));
  return node;
}

void include_node(Host& kept, const Host& host, const NodeSpec& node) {
  kept.slots = node.slots.empty() ? host.slots : std::vector<int>(node.slots.begin(), node.slots.end());
}

void exclude_node(Host& kept, const NodeSpec& node) {
  if (node.slots.empty()) kept.slots.clear();
  std::erase_if(kept.slots, [&](int slot) { return node.slots.contains(slot); });
}

}  // namespace

std::vector<Host> filter_hosts(const std::vector<Host>& hosts, std::string_view include,
                               std::string_view exclude) {
  if (include.empty() && exclude.empty()) return hosts;
  const Filter filter = include.empty() ? Filter{"--exclude", exclude} : Filter{"--include", include};
  if (!include.empty() && !exclude.empty()) refuse(filter, "--exclude is given, too", "one of both");
  auto kept = hosts;
  if (!include.empty())
    for (auto& host : kept) host.slots.clear();
  for (const auto text : split(filter.text, '@')) {
    const auto node = parse_node(hosts, text, filter);
    if (include.empty())
      exclude_node(kept[node.host], node);
    else
      include_node(kept[node.host], hosts[node.host], node);
  }
  for (std::size_t i = 0; i < hosts.size(); ++i)
    kept[i].has_all_slots = kept[i].slots.size() == hosts[i].slots.size();
  std::erase_if(kept, [](const Host& host) { return host.slots.empty(); });
  if (kept.empty()) refuse(filter, "no host is left", "a filter that leaves one");
  return kept;
}

std::string visible_devices(const Host& host) {
  std::string devices;
  for (const int slot : host.slots) devices += (devices.empty() ? "" : ",") + std::to_string(slot);
  return devices;
}

}  // namespace lockstep
