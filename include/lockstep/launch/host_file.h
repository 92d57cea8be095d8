// Host files: on which hosts a job runs, and with how many ranks on each. DeepSpeed's format and filters.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// One host of a job.
struct Host {
  std::string name;           ///< as ssh takes it
  std::vector<int> slots;     ///< numbers of its places for ranks, ascending; at least one
  bool has_all_slots = true;  ///< no filter has taken some away
};

/// Reads lines of `HOST slots=N`; empty lines and comments (`#` to the end of the line) are skipped. Slots
/// are numbered from 0. `file` is for messages. Source: DeepSpeed's deepspeed/launcher/runner.py.
/// @throws ConfigError naming file:line and the line's text: another format, no slots, a host that was there
///   before; or the file, when it names no host
LOCKSTEP_API std::vector<Host> parse_host_file(std::string_view text, std::string_view file);

/// parse_host_file() of the content of `path`.
/// @throws ConfigError as above, and when the file cannot be read
LOCKSTEP_API std::vector<Host> read_host_file(const std::filesystem::path& path);

/// Keeps what `include` names, or all but what `exclude` names: `HOST[:SLOT,...]`, several joined by `@`;
/// without slots it means all of that host. `worker-0@worker-1:0,2` is all of worker-0, and slots 0 and 2 of
/// worker-1. The order is that of `hosts`; of an included host that is named twice the last mention counts.
/// Empty texts keep all. Source: as above, parse_resource_filter().
/// @throws ConfigError when both are given, for an unknown host or slot, and when nothing is left
LOCKSTEP_API std::vector<Host> filter_hosts(const std::vector<Host>& hosts, std::string_view include,
                                            std::string_view exclude);

/// The slots of `host` as CUDA_VISIBLE_DEVICES takes them: as in DeepSpeed, a slot is an accelerator.
LOCKSTEP_API std::string visible_devices(const Host& host);

}  // namespace lockstep
