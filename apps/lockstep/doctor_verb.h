// The verb `doctor` of the `lockstep` command.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

struct DoctorFlags {
  int ranks = 2;
  double timeout_s = 60;
  bool no_self_test = false;
  std::vector<std::string> hosts;
  bool json = false;
};

CLI::App* add_doctor(CLI::App& app, DoctorFlags& flags);

/// Prints what was found, and returns 0, or 1 where ranks cannot run so.
int doctor(const DoctorFlags& flags);
