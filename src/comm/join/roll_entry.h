// What a rank leaves in the store when it joins: where it runs and what it means.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// One rank's entry.
struct RollEntry {
  std::string host = {};
  pid_t pid = 0;
  std::string pid_space = {};  ///< where `pid` means this process: its PID namespace; empty: not known
  std::map<std::string, std::string> settings = {};  ///< by name; must be equal on all ranks

  /// "node1, pid 123"
  std::string whereabouts() const;
  /// Whether its process ran on this host, where we can see it, and runs no more.
  LOCKSTEP_API bool is_gone() const;
};

/// The entry of this process.
LOCKSTEP_API RollEntry own_entry(const std::map<std::string, std::string>& settings = {});

/// Text without loss.
LOCKSTEP_API std::string to_text(const RollEntry& entry);
LOCKSTEP_API RollEntry roll_entry_from_text(const std::string& text);

}  // namespace lockstep::detail
