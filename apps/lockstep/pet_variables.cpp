#include "pet_variables.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>

#include "refusal.h"

namespace {

// Torchrun has no variable for --numa-binding.
constexpr std::array kSharedFlags{"nnodes",        "nproc-per-node",   "rdzv-backend",
                                  "rdzv-endpoint", "rdzv-id",          "rdzv-conf",
                                  "role",          "standalone",       "max-restarts",
                                  "module",        "no-python",        "monitor-interval",
                                  "log-dir",       "redirects",        "tee",
                                  "node-rank",     "master-addr",      "master-port",
                                  "local-addr",    "shutdown-timeout", "local-ranks-filter"};
constexpr std::array kOfTorchrunAlone{"PET_START_METHOD",
                                      "PET_EVENT_LOG_HANDLER",
                                      "PET_RUN_PATH",
                                      "PET_SIGNALS_TO_HANDLE",
                                      "PET_DUPLICATE_STDOUT_FILTERS",
                                      "PET_VIRTUAL_LOCAL_RANK",
                                      "PET_DUPLICATE_STDERR_FILTERS"};

std::map<std::string, std::string>& places() {
  static std::map<std::string, std::string> by_flag;
  return by_flag;
}

std::string pet_variable_of(std::string flag) {
  std::ranges::transform(flag, flag.begin(), [](unsigned char letter) {
    return letter == '-' ? '_' : static_cast<char>(std::toupper(letter));
  });
  return "PET_" + flag;
}

std::optional<std::string> value_of_variable(const std::string& name) {
  auto value = lockstep::env::get(name);
  return value && !value->empty() ? value : std::nullopt;
}

bool is_switched_on(const std::string& variable, const std::string& value) {
  const auto is_on = lockstep::OptionType<bool>::parse(value);
  if (!is_on) refuse_run("environment variable " + variable, "1 or 0", "\"" + value + "\"");
  return *is_on;
}

void give(CLI::Option& option, const std::string& variable, const std::string& value) try {
  option.add_result(value);
  option.run_callback();
} catch (const CLI::Error& error) {
  const std::string text = error.what();
  const auto reason = text.find(": ");
  throw lockstep::ConfigError(
      "run", {.what = "environment variable " + variable + " stands for " + option.get_name() +
                      (reason == text.npos ? "" : "; " + text.substr(reason + 2))});
}

void take_variable(CLI::App& verb, const std::string& flag) {
  auto* option = verb.get_option_no_throw("--" + flag);
  const auto variable = pet_variable_of(flag);
  const auto value = value_of_variable(variable);
  if (option->count() > 0 || !value) return;
  const bool is_switch = option->get_expected_max() == 0;
  if (is_switch && !is_switched_on(variable, *value)) return;
  places()["--" + flag] = "environment variable " + variable;
  give(*option, variable, is_switch ? "true" : *value);
}

}  // namespace

void take_pet_variables(CLI::App& verb) {
  const bool is_placed = verb.count("--first-rank") > 0 || verb.count("--tied-to-stdin") > 0;
  if (is_placed) return;
  for (const char* flag : kSharedFlags) take_variable(verb, flag);
  for (const char* variable : kOfTorchrunAlone) {
    if (value_of_variable(variable))
      lockstep::log_warning("environment variable " + std::string(variable) +
                            " has no effect: lockstep run has no such flag");
  }
}

std::string place_of_flag(const std::string& flag) {
  const auto place = places().find(flag);
  return place == places().end() ? "" : place->second;
}
