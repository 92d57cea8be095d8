// init_process_group()'s init_method, and a hook for the end of a process group.
#pragma once

#include <map>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// The parts of an init_method: env://, tcp://HOST:PORT or file:///PATH.
struct InitMethod {
  std::string scheme = {};                             ///< "env", "tcp" or "file"
  std::string host = {};                               ///< of tcp; an IPv6 address without its brackets
  int port = 0;                                        ///< of tcp
  std::string path = {};                               ///< of file
  std::map<std::string, std::string> parameters = {};  ///< rank, world_size
};

/// @throws ConfigError naming the part that is missing or malformed
LOCKSTEP_API InitMethod parse_init_method(const std::string& text);

/// What is done when a process leaves its group: other modules may keep parts of it for what its users have
/// dropped, and the other ranks would wait for them. `hook`, which does not throw, is called whenever a
/// ProcessGroup ends, in whatever way. There is one hook; the same may be set again. Thread-safe.
LOCKSTEP_API void set_process_group_exit_hook(void (*hook)());

}  // namespace lockstep::detail
