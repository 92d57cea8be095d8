#include <chrono>
#include <string>

#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>
#include <lockstep/launch/binding.h>

#include "base/format.h"
#include "doctor/program_output.h"
#include "doctor/programs.h"

namespace lockstep::doctor {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The ranks, which must load LibTorch first, give up before they are killed, so that they can say what they
// wait for.
milliseconds timeout_of_ranks(milliseconds timeout) { return timeout / 2; }

std::vector<std::string> command_of_ranks(const DoctorOptions& options) {
  return {options.command.string(),
          "run",
          "--nproc-per-node",
          std::to_string(options.ranks),
          "--no-python",
          options.self_test.string(),
          "ranks",
          std::to_string(timeout_of_ranks(options.timeout).count())};
}

Finding timing_finding(const TimingFacts& timing) {
  return with_value(ok(timing.name + " of " + memory_text(timing.bytes) + " by " + timing.carried_by + ": " +
                       two_digits(timing.median_us) + " us, the median of " + std::to_string(timing.rounds)),
                    timing.median_us, "microseconds");
}

}  // namespace

SelfTestFacts read_self_test_facts(const std::string& json) {
  const auto read = [](const nlohmann::json& object) {
    SelfTestFacts facts{.ranks = object.at("ranks"),
                        .meet_s = object.at("meet_s"),
                        .shares_memory = object.at("shares_memory")};
    for (const auto& each : object.at("timings"))
      facts.timings.push_back({.name = each.at("name"),
                               .bytes = each.at("bytes"),
                               .carried_by = each.at("carried_by"),
                               .rounds = each.at("rounds"),
                               .median_us = each.at("median_us")});
    return facts;
  };
  return read_program_output<SelfTestFacts>(json, read);
}

SelfTestFacts self_test_facts(const DoctorOptions& options) {
  const auto begin = steady_clock::now();
  SelfTestFacts facts;
  try {
    facts = read_self_test_facts(output_of(command_of_ranks(options), options.timeout));
  } catch (const Error& failure) {
    facts.failure = failure.what();
  }
  facts.ranks = options.ranks;
  facts.seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
  return facts;
}

Findings judge(const SelfTestFacts& facts) {
  const auto ranks = counted(facts.ranks, "rank");
  if (!facts.failure.empty())
    return {with_value(error(ranks + " of this machine could not be started, meet and add tensors, after " +
                                 two_digits(facts.seconds) + " s: " + facts.failure,
                             "Mend the errors above first. lockstep doctor --timeout gives it more time."),
                       facts.seconds, "seconds")};
  Findings findings{
      with_value(
          ok(ranks + " were started, added tensors and ended within " + two_digits(facts.seconds) + " s"),
          facts.seconds, "seconds"),
      with_value(
          ok("they met in the launcher's store and were connected within " + two_digits(facts.meet_s) + " s"),
          facts.meet_s, "seconds")};
  if (!facts.shares_memory)
    findings.push_back(note("The ranks do not share memory, so that all goes by sockets.",
                            "See shared memory above; ranks need the same user, and /proc of each other."));
  for (const auto& timing : facts.timings) findings.push_back(timing_finding(timing));
  if (facts.ranks > usable_processors())
    findings.push_back(note("The ranks shared processors, so that the times are longer than elsewhere."));
  return findings;
}

}  // namespace lockstep::doctor
