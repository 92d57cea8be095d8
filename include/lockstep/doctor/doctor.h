// `lockstep doctor`: looks whether ranks can run on this machine, and says what is wrong and what to do.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

enum class FindingState {
  kOk,
  kNote,     ///< is fine here, and explains what is seen elsewhere
  kWarning,  ///< works, but slowly, or not for all that one may want
  kError     ///< ranks cannot run so
};

/// What one look at the machine has shown.
struct Finding {
  std::string check = {};  ///< what was looked at: "open files"
  FindingState state = FindingState::kOk;
  std::string text = {};             ///< what there is, and what it means
  std::string advice = {};           ///< what to do; empty: nothing
  std::optional<double> value = {};  ///< the number that `text` is about
  std::string unit = {};             ///< of `value`: "bytes", "microseconds"
};

/// What to look at, and the programs that this takes.
struct DoctorOptions {
  std::string commit = {};               ///< that this lockstep was built from; empty: unknown
  std::filesystem::path command = {};    ///< the program `lockstep`
  std::filesystem::path self_test = {};  ///< the program `lockstep-self-test`
  bool runs_ranks = true;                ///< starts ranks that meet and add tensors
  int ranks = 2;                         ///< so many, >= 2
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  ///< for each program that is started
  std::vector<std::string> hosts = {};  ///< other hosts, by name or address, that are to be reached
};

/// All findings, in the order of the table of checks. A check that fails itself is an error among them.
/// Blocks: for two starts of programs that load LibTorch, each for `timeout` at most, and for the system's
/// resolver of names.
LOCKSTEP_API std::vector<Finding> examine(const DoctorOptions& options);

/// The findings as a text for a report of a problem. No value of a variable that could be a secret is in it.
LOCKSTEP_API std::string findings_text(std::span<const Finding> findings);

/// {"lockstep", "commit", "healthy", "counts": {"ok", "note", "warning", "error"}, "findings": [{"check",
/// "state", "text", "advice", "value", "unit"}]}
LOCKSTEP_API std::string findings_json(std::span<const Finding> findings, const std::string& commit);

/// Whether none of them is an error.
LOCKSTEP_API bool is_healthy(std::span<const Finding> findings);

}  // namespace lockstep
