#include <lockstep/base/error.h>
#include <lockstep/launch/host_file.h>

#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

// A host file, a zero byte, a filter.
void parse(std::string_view text) {
  const auto end = std::min(text.find('\0'), text.size());
  const auto hosts = parse_host_file(text.substr(0, end), "hosts");
  expect(!hosts.empty(), "gave no host");
  for (const auto& host : hosts) expect(!host.slots.empty() && !host.name.starts_with('-'), "gave no place");
  if (end == text.size()) return;
  for (const auto& host : filter_hosts(hosts, text.substr(end + 1), ""))
    expect(!host.slots.empty(), "gave an empty host");
}

void run_hosts(std::span<const std::byte> input) {
  try {
    parse({reinterpret_cast<const char*>(input.data()), input.size()});
  } catch (const ConfigError&) {
  }
}

}  // namespace

Target hosts_target() {
  using namespace std::string_literals;
  return {.name = "hosts",
          .seeds = {"worker-0 slots=4\nworker-1 slots=4\n\0worker-0@worker-1:0,2"s,
                    "# hosts\na slots=1  # one\n"s},
          .tokens = {"\n", " slots=", "#", "\0"s, "@", ":", ",", "0", "65536", "-", "a", "worker-0"},
          .memory_bytes = std::size_t{2} << 20,
          .memory_per_byte = 65'536 * sizeof(int) / 4,
          .run = run_hosts};
}

}  // namespace lockstep::fuzz
