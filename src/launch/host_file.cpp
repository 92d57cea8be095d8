#include <lockstep/launch/host_file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>

#include "base/format.h"
#include "base/printable.h"

namespace lockstep {
namespace {

constexpr std::string_view kBlanks = " \t\r\f\v";
constexpr std::string_view kSlots = "slots=";
constexpr int kMaxSlots = 65'536;
constexpr std::size_t kMaxHostFileBytes = std::size_t{16} << 20;

struct Line {
  std::string_view text;
  std::string_view file;
  int number = 0;
};

[[noreturn]] void refuse(const Line& line, const std::string& what, const std::string& expected) {
  throw ConfigError("hosts", {.what = what,
                              .expected = expected,
                              .got = "\"" + detail::printable(line.text) + "\"",
                              .where = std::string(line.file) + ":" + std::to_string(line.number)});
}

// A name that begins with a dash would be a flag of ssh.
bool is_host_name(std::string_view name) {
  const auto is_plain = [](unsigned char letter) { return letter > ' ' && letter != 127; };
  return !name.empty() && name.front() != '-' && std::ranges::all_of(name, is_plain);
}

std::vector<int> slots_of(const Line& line, std::string_view number) {
  const auto count = OptionType<int>::parse(number);
  const bool is_number = !number.empty() && number.front() >= '0' && number.front() <= '9';
  if (!is_number || !count || *count < 1 || *count > kMaxSlots)
    refuse(line, "slots of a host", "slots=N, N from 1 to " + std::to_string(kMaxSlots));
  std::vector<int> slots(static_cast<std::size_t>(*count));
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

Host host_of(const Line& line) {
  const auto name = line.text.substr(0, line.text.find_first_of(kBlanks));
  const auto rest = detail::trimmed(line.text.substr(name.size()), kBlanks);
  if (!is_host_name(name) || !rest.starts_with(kSlots))
    refuse(line, "a line of the host file", "HOST slots=N");
  const auto slots = rest.substr(0, rest.find_first_of(kBlanks));
  if (slots.size() < rest.size()) refuse(line, "what follows " + std::string(slots), "HOST slots=N alone");
  return {.name = std::string(name), .slots = slots_of(line, slots.substr(kSlots.size()))};
}

}  // namespace

std::vector<Host> parse_host_file(std::string_view text, std::string_view file) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<Host> hosts;
  std::map<std::string, int, std::less<>> line_of;
  Line line{.text = {}, .file = file};
  while (!text.empty()) {
    const auto whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), whole.size() + 1));
    ++line.number;
    line.text = detail::trimmed(whole.substr(0, whole.find('#')), kBlanks);
    if (line.text.empty()) continue;
    auto host = host_of(line);
    const auto [known, is_new] = line_of.emplace(host.name, line.number);
    if (!is_new)
      refuse(line, "host " + host.name + " is there twice",
             "each host once; it is in line " + std::to_string(known->second) + " already");
    hosts.push_back(std::move(host));
  }
  if (hosts.empty())
    throw ConfigError(
        "hosts", {.what = "host file " + std::string(file), .expected = "HOST slots=N", .got = "no host"});
  return hosts;
}

std::vector<Host> read_host_file(const std::filesystem::path& path) {
  const auto refuse_file = [&](const std::string& why) {
    throw ConfigError("hosts",
                      {.what = "host file " + path.string(), .expected = "a file to read", .got = why});
  };
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure)) refuse_file("a folder");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) refuse_file(std::strerror(errno));
  std::string text(kMaxHostFileBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kMaxHostFileBytes) refuse_file("more than 16 MiB");
  return parse_host_file(text, path.string());
}

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
