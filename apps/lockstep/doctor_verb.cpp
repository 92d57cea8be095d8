#include "doctor_verb.h"

#include <chrono>
#include <filesystem>
#include <iostream>

#include <lockstep/doctor/doctor.h>

#include "number_checks.h"
#include "version_text.h"

namespace {

constexpr double kLeastSeconds = 1;

std::filesystem::path own_executable() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/exe", none);
}

}  // namespace

CLI::App* add_doctor(CLI::App& app, DoctorFlags& flags) {
  auto* verb = app.add_subcommand(
      "doctor", "Look whether ranks can run on this machine, and say what is wrong and what to do");
  verb->add_option("--ranks", flags.ranks, "Ranks of the self-test")
      ->check(whole_number(2))
      ->capture_default_str();
  verb->add_option("--timeout", flags.timeout_s, "Seconds for each program that is started")
      ->check(number_of_seconds(kLeastSeconds))
      ->capture_default_str();
  verb->add_flag("--no-self-test", flags.no_self_test, "Start no ranks");
  verb->add_option(
          "--host", flags.hosts,
          "Look also whether this host has an address, and whether an interface leads there; repeatable")
      ->allow_extra_args(false);
  verb->add_flag("--json", flags.json, "Print JSON");
  return verb;
}

int doctor(const DoctorFlags& flags) {
  const auto command = own_executable();
  const auto findings = lockstep::examine(
      {.commit = built_commit(),
       .command = command,
       .self_test = command.parent_path() / "lockstep-self-test",
       .runs_ranks = !flags.no_self_test,
       .ranks = flags.ranks,
       .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(flags.timeout_s * 1000)),
       .hosts = flags.hosts});
  std::cout << (flags.json ? lockstep::findings_json(findings, built_commit())
                           : lockstep::findings_text(findings));
  return lockstep::is_healthy(findings) ? 0 : 1;
}
