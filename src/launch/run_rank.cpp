#include <lockstep/launch/run_rank.h>

#include <unistd.h>

#include <iostream>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>
#include <lockstep/launch/join.h>

#include "launch/guard_rank.h"
#include "launch/run_files.h"

namespace lockstep {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

void print_unless_supervised(const std::string& text) {
  if (env::get("LOCKSTEP_LAUNCHED")) return;
  const auto rank = env::get("RANK");
  const auto who = rank ? "rank " + *rank + " (pid " + std::to_string(::getpid()) + ") failed: " : "";
  std::cerr << "lockstep: " + who + text + "\n";
}

int fail(RankOutcome outcome, int exit_code, const std::string& text) {
  set_outcome(outcome, text);
  print_unless_supervised(text);
  return exit_code;
}

}  // namespace

int launch::guard_rank(const std::function<int()>& body) {
  try {
    const int code = body();
    if (code == 0) set_outcome(RankOutcome::kDone);
    return code;
  } catch (const ConfigError& error) {
    return fail(RankOutcome::kFailed, kUsage, error.what());
  } catch (const PeerLost& error) {
    return fail(RankOutcome::kPeerFailed, kFailure, error.what());
  } catch (const Timeout& error) {
    return fail(RankOutcome::kTimedOut, kFailure, error.what());
  } catch (const std::exception& error) {
    return fail(RankOutcome::kFailed, kFailure, error.what());
  } catch (...) {
    return fail(RankOutcome::kFailed, kFailure, "an exception that is no std::exception");
  }
}

int run_rank(const std::function<void()>& body, const std::filesystem::path& run_dir) {
  const int code = launch::guard_rank([&] {
    body();
    return 0;
  });
  if (code != 0 && !run_dir.empty() && !started_by_launcher()) launch::write_lone_failure(run_dir, code);
  return code;
}

}  // namespace lockstep
