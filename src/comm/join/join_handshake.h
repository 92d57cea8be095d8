// The join handshake: who is there and whether all ranks mean the same, before anything is connected.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>
#include <lockstep/comm/store.h>

namespace lockstep::detail {

/// What a rank leaves in the store when it joins: where it runs and what it means.
struct JoinEntry {
  std::string host = {};
  pid_t pid = 0;
  std::string pid_space = {};  ///< where `pid` means this process: its PID namespace; empty: not known
  std::map<std::string, std::string> settings = {};  ///< by name; must be equal on all ranks

  /// "node1, pid 123"
  std::string whereabouts() const;
  /// Whether its process ran on this host, where we can see it, and runs no more.
  LOCKSTEP_API bool is_gone() const;
};

/// What all ranks have left, by rank.
using JoinedRanks = std::vector<JoinEntry>;

/// The entry of this process.
LOCKSTEP_API JoinEntry own_entry(const std::map<std::string, std::string>& settings = {});

/// Text without loss.
LOCKSTEP_API std::string to_text(const JoinEntry& entry);
LOCKSTEP_API JoinEntry join_entry_from_text(const std::string& text);

/// A rank that wants to join.
struct JoinRequest {
  int rank = 0;
  int world_size = 1;
  std::map<std::string, std::string> settings = {};  ///< by name; must be equal on all ranks
  bool is_server = false;                            ///< its process serves the store
  std::string left_over = {};  ///< where the store outlives processes (a file): its name
};

/// Tells the others that `own` is here and waits for all of them. Collective, blocking. Whoever finds
/// something wrong leaves it in the store, so that all who are there throw the same, within moments.
/// @throws Timeout naming the missing ranks; CommError for a rank that is there twice, or a store left over
///   from an earlier run; CollectiveMismatch for ranks with another world size or other settings
JoinedRanks join_handshake(Store& store, const JoinRequest& own,
                           std::chrono::steady_clock::time_point deadline, std::chrono::milliseconds timeout);

/// Tells those who wait in join_handshake() that their group cannot come about: they throw a CommError with
/// `parts`. Does not block.
void cancel_handshake(Store& store, const ErrorParts& parts);

/// @throws PeerLost naming the first rank whose process ran on this host and runs no more
void require_alive(const JoinedRanks& ranks);

/// Tells a file store that `ranks` have met in it, this process as number `rank`. From then on its file is
/// removed by whoever leaves last of those that live, where it would wait for the others for ever. Does
/// nothing for other stores than those of make_file_store(). (file_store.cpp)
LOCKSTEP_API void set_users(const Store& store, int rank, JoinedRanks ranks);

}  // namespace lockstep::detail
