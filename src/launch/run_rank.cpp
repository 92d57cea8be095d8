#include <lockstep/launch/run_rank.h>

#include <unistd.h>

#include <cctype>
#include <iostream>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/spawn.h>
#include <lockstep/launch/terminated.h>

#include "base/standard_descriptors.h"
#include "launch/first_process.h"
#include "launch/guard_rank.h"
#include "launch/run_files.h"
#include "launch/status_table.h"

namespace lockstep {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

// The first line without control characters: other libraries' texts go on with stack frames.
std::string one_line(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  for (char& letter : line) {
    if (std::iscntrl(static_cast<unsigned char>(letter)) != 0) letter = '?';
  }
  return line;
}

int exit_code_of(const std::exception& error) {
  if (const auto* process = dynamic_cast<const ProcessError*>(&error)) return process->exit_code();
  if (dynamic_cast<const Terminated*>(&error) != nullptr) return Terminated::kExitCode;
  return dynamic_cast<const ConfigError*>(&error) != nullptr ? kUsage : kFailure;
}

// By somebody who says what this rank has noted.
bool is_supervised() { return env::get("LOCKSTEP_LAUNCHED") && !launch::is_status_lost(); }

// All ranks end together: one of them says so.
void print_end(const Terminated& end) {
  if (!is_supervised() && told_rank().value_or("0") == "0")
    std::cerr << "lockstep: " + one_line(end.what()) + "\n";
}

void print_unless_supervised(const std::string& text) {
  if (is_supervised()) return;
  const auto rank = told_rank();
  const auto who = rank ? "rank " + *rank + " (pid " + std::to_string(::getpid()) + ") failed: " : "";
  std::cerr << "lockstep: " + who + one_line(text) + "\n";
}

}  // namespace

void note_failure(const std::exception& error) {
  const auto outcome = dynamic_cast<const PeerLost*>(&error)  ? RankOutcome::kPeerFailed
                       : dynamic_cast<const Timeout*>(&error) ? RankOutcome::kTimedOut
                                                              : RankOutcome::kFailed;
  set_outcome(outcome, error.what());
}

int launch::guard_rank(const std::function<int()>& body) {
  occupy_standard_descriptors();
  heed_signals_as_first_process();
  try {
    const int code = body();
    if (code == 0) set_outcome(RankOutcome::kDone);
    return code;
  } catch (const Terminated& end) {
    note_failure(end);
    print_end(end);
    return exit_code_of(end);
  } catch (const std::exception& error) {
    note_failure(error);
    print_unless_supervised(error.what());
    return exit_code_of(error);
  } catch (...) {
    const std::string text = "an exception that is no std::exception";
    set_outcome(RankOutcome::kFailed, text);
    print_unless_supervised(text);
    return kFailure;
  }
}

int run_rank(const std::function<void()>& body, const std::filesystem::path& run_dir) {
  const int code = launch::guard_rank([&] {
    if (env::get("LOCKSTEP_LAUNCHED")) join_launcher();
    body();
    return 0;
  });
  const bool has_failed = code != 0 && code != Terminated::kExitCode;
  if (has_failed && !run_dir.empty() && !started_by_launcher()) launch::write_lone_failure(run_dir, code);
  return code;
}

}  // namespace lockstep
