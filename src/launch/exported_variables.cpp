#include <lockstep/launch/exported_variables.h>

#include <algorithm>
#include <array>
#include <fstream>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

constexpr std::array<std::string_view, 15> kPrefixes = {
    "FI_",      "GLOO_", "KMP_",      "LOCKSTEP_", "MKL_",     "MLFLOW", "MV2", "NCCL_",
    "NUMEXPR_", "OMP_",  "OPENBLAS_", "PYTHON",    "PYTORCH_", "TORCH",  "UCX"};
constexpr std::array kNames = {"LD_LIBRARY_PATH", "PATH", "VIRTUAL_ENV"};
// Variables about this host or this process, which are not exported.
constexpr std::array<std::string_view, 10> kPrivate = {
    "LOCKSTEP_JOB_TOKEN",   "LOCKSTEP_LAUNCHED",      "LOCKSTEP_LAUNCHER_START_NS", "LOCKSTEP_LISTEN_FD",
    "LOCKSTEP_ROUND",       "LOCKSTEP_START_NS",      "LOCKSTEP_STATUS_FD",         "LOCKSTEP_STORE",
    "LOCKSTEP_STORE_SCOPE", "LOCKSTEP_STORE_TOKEN_FD"};
constexpr std::array kFiles = {".deepspeed_env", ".lockstep_env"};

void add_line(Variables& variables, const std::string& line, const std::string& file, int number) {
  if (line.empty() || line.front() == '#') return;
  const auto equals = line.find('=');
  if (equals == 0 || equals == std::string::npos || line.find('\0') != std::string::npos)
    throw ConfigError("hosts", {.what = "a line of the file of variables",
                                .expected = "NAME=VALUE",
                                .got = "\"" + line + "\"",
                                .where = file + ":" + std::to_string(number)});
  variables[line.substr(0, equals)] = line.substr(equals + 1);
}

void add_file(Variables& variables, const std::filesystem::path& file) {
  std::ifstream stream(file);
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    add_line(variables, line, file.string(), ++number);
  }
}

}  // namespace

std::span<const std::string_view> exported_prefixes() { return kPrefixes; }

std::map<std::string, std::string> variables_of_files(const std::filesystem::path& folder) {
  Variables variables;
  for (const char* name : kFiles) {
    if (const auto home = env::get("HOME")) add_file(variables, std::filesystem::path(*home) / name);
    add_file(variables, folder / name);
  }
  return variables;
}

std::map<std::string, std::string> exported_variables(const std::filesystem::path& folder) {
  Variables variables;
  for (const auto prefix : kPrefixes) variables.merge(env::with_prefix(prefix));
  std::erase_if(variables, [](const auto& variable) {
    return std::ranges::find(kPrivate, variable.first) != kPrivate.end() ||
           variable.first.starts_with("TORCHELASTIC_");
  });
  for (const char* name : kNames)
    if (auto value = env::get(name)) variables[name] = std::move(*value);
  for (auto& [name, value] : variables_of_files(folder)) variables[name] = std::move(value);
  return variables;
}

}  // namespace lockstep
