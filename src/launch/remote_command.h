// The words with which a remote shell is called.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/launch/run_on_hosts.h>

namespace lockstep::launch {

/// One word for a shell, be it POSIX's, csh or fish: in quotes unless it is plain. No newlines.
std::string shell_word(std::string_view word);

/// The remote shell's arguments that make it execute `program node` on `host`, beginning with its own name.
std::vector<std::string> remote_command(const RemoteShell& shell, const std::string& host,
                                        const std::string& program);

}  // namespace lockstep::launch
