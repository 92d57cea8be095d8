// The table of checks. To add one, write a function that makes findings, and add a row.
#include <lockstep/doctor/doctor.h>

#include <sys/utsname.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <string>

#include <lockstep/base/build_facts.h>
#include <lockstep/base/env.h>

#include "base/system.h"
#include "doctor/cluster.h"
#include "doctor/findings.h"
#include "doctor/machine.h"
#include "doctor/network.h"
#include "doctor/programs.h"

namespace lockstep::doctor {
namespace {

/// What the checks of one call of examine() look at, and what several of them ask for.
struct Examination {
  DoctorOptions options;
  LibraryFacts libraries = {};  ///< of the check of that name
};

using Look = Findings (*)(Examination& examination);

Findings look_at_build(Examination& examination) {
  const auto& facts = build_facts();
  const auto commit = examination.options.commit.empty() ? "" : " (" + examination.options.commit + ")";
  auto text = facts.version + commit + ", " + facts.build_type + ", " + facts.compiler + ", " + facts.abi +
              ", on " + facts.system;
  if (facts.is_optimised) return {ok(std::move(text))};
  return {warning(std::move(text) + ": not made for speed.", "Build with cmake --preset release.")};
}

std::string distribution() {
  std::ifstream lines("/etc/os-release");
  const std::string key = "PRETTY_NAME=";
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key)) {
      auto name = line.substr(key.size());
      std::erase(name, '"');
      return name;
    }
  return "an unknown distribution";
}

Findings look_at_system(Examination&) {
  utsname system{};
  ::uname(&system);
  return {
      ok(std::string(system.sysname) + " " + system.release + " " + system.machine + ", " + distribution())};
}

Findings look_at_libraries(Examination& examination) {
  examination.libraries = library_facts(examination.options);
  return judge_libraries(examination.libraries, build_facts());
}

void append(Findings& findings, Findings more) {
  for (auto& finding : more) findings.push_back(std::move(finding));
}

Findings look_at_hosts(Examination& examination) {
  auto findings = judge(host_facts(detail::host_name(), /*is_own=*/true));
  for (const auto& host : examination.options.hosts) append(findings, judge(host_facts(host, false)));
  return findings;
}

Findings look_at_cluster(Examination&) {
  const auto facts = cluster_facts();
  auto findings = judge(facts);
  auto main_address = facts.main_address;
  if (main_address.empty()) main_address = env::get("MASTER_ADDR").value_or("");
  if (!main_address.empty()) append(findings, judge(host_facts(main_address, false)));
  return findings;
}

Findings look_at_self_test(Examination& examination) {
  if (!examination.options.runs_ranks) return {note("left out (--no-self-test)")};
  if (!examination.libraries.failure.empty()) return {note("left out, as LibTorch cannot be loaded")};
  return judge(self_test_facts(examination.options));
}

struct Check {
  const char* name;
  Look look;
};

constexpr Check kChecks[] = {
    {"lockstep", &look_at_build},
    {"system", &look_at_system},
    {"LibTorch", &look_at_libraries},
    {"accelerators", [](Examination& each) { return judge_accelerators(each.libraries); }},
    {"processors", [](Examination&) { return judge(processor_facts()); }},
    {"memory", [](Examination&) { return judge(memory_facts()); }},
    {"limits", [](Examination&) { return judge(limit_facts()); }},
    {"shared memory", [](Examination&) { return judge(shared_memory_facts()); }},
    {"host names", &look_at_hosts},
    {"interfaces", [](Examination&) { return judge(interface_facts()); }},
    {"ports", [](Examination&) { return judge(port_facts()); }},
    {"cluster", &look_at_cluster},
    {"variables", [](Examination&) { return judge(variable_facts()); }},
    {"self-test", &look_at_self_test},
};

Findings look(const Check& check, Examination& examination) {
  Findings findings;
  try {
    findings = check.look(examination);
  } catch (const std::exception& failure) {
    findings = {error("The check itself failed: " + std::string(failure.what()), "Report this text.")};
  }
  for (auto& finding : findings) finding.check = check.name;
  return findings;
}

}  // namespace
}  // namespace lockstep::doctor

namespace lockstep {

std::vector<Finding> examine(const DoctorOptions& options) {
  doctor::Examination examination{.options = options};
  std::vector<Finding> findings;
  for (const auto& check : doctor::kChecks) doctor::append(findings, doctor::look(check, examination));
  return findings;
}

bool is_healthy(std::span<const Finding> findings) {
  return std::ranges::none_of(findings, [](const auto& each) { return each.state == FindingState::kError; });
}

}  // namespace lockstep
