#include <lockstep/testing/fork_ranks.h>

#include <lockstep/base/error.h>

#include "testing/forked_rank.h"
#include "testing/zygote.h"

namespace lockstep::testing {
namespace {

void require(bool holds, const char* what, const std::string& expected, std::int64_t got) {
  if (holds) return;
  throw ConfigError("testing", {.what = std::string("fork_ranks: ") + what + " is out of range",
                                .expected = expected,
                                .got = std::to_string(got)});
}

void validate(int ranks, const ForkRanksOptions& options) {
  require(ranks >= 1, "the number of ranks", "at least 1", ranks);
  require(options.deadline.count() > 0, "deadline", "more than 0 ms", options.deadline.count());
  const auto& fault = options.fault;
  const bool is_rank = fault.rank >= 0 && fault.rank < ranks;
  require(fault.kind == FaultKind::kNone || is_rank, "fault.rank", "0.." + std::to_string(ranks - 1),
          fault.rank);
}

}  // namespace

std::vector<RankResult> fork_ranks(int ranks, const std::string& name, const std::string& argument,
                                   const ForkRanksOptions& options) {
  validate(ranks, options);
  find_rank_body(name);
  auto report = run_in_zygote({.ranks = ranks, .name = name, .argument = argument, .options = options});
  const ErrorParts parts{.what = report.what, .got = report.got};
  switch (report.failure) {
    case JobFailure::kNone:
      return std::move(report.ranks);
    case JobFailure::kTimeout:
      throw Timeout("testing", parts);
    case JobFailure::kOther:
      break;
  }
  throw Error("testing", parts);
}

}  // namespace lockstep::testing
