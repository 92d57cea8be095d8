#include "launch/find_program.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxShown = 200;

// Empty where `path` can be executed. Never throws, as a name may be longer than the system takes.
std::string why_not(const fs::path& path) {
  std::error_code failure;
  const auto status = fs::status(path, failure);
  if (status.type() == fs::file_type::not_found) return "no such file";
  if (failure) return failure.message();
  if (fs::is_directory(status)) return "a folder";
  return ::access(path.c_str(), X_OK) == 0 ? "" : "a file without permission to execute";
}

}  // namespace

void refuse_program(const std::string& name, const std::string& why) {
  const auto shown = name.size() > kMaxShown ? name.substr(0, kMaxShown) + "..." : name;
  throw ConfigError("launch",
                    {.what = "program " + shown, .expected = "one that can be executed", .got = why});
}

void require_interpreter(const fs::path& program) {
  std::ifstream file(program, std::ios::binary);
  std::string line;
  if (file.get() != '#' || file.get() != '!' || !std::getline(file, line)) return;
  const auto begin = std::min(line.find_first_not_of(" \t"), line.size());
  auto interpreter = line.substr(begin, line.find_first_of(" \t", begin) - begin);
  const auto why = why_not(interpreter);
  if (interpreter.empty() || why.empty()) return;
  const bool has_return = interpreter.ends_with('\r');
  if (has_return) interpreter.pop_back();
  refuse_program(program.string(),
                 "a script for the interpreter " + interpreter +
                     (has_return ? " and a carriage return, which ends its first line" : "") + ": " + why);
}

fs::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (const auto why = why_not(name); !why.empty()) refuse_program(name, why);
    return name;
  }
  const std::string folders = env::get("PATH").value_or("/usr/bin:/bin");
  for (std::size_t begin = 0; begin <= folders.size();) {
    const auto end = std::min(folders.find(':', begin), folders.size());
    const auto candidate = fs::path(folders.substr(begin, end - begin)) / name;
    if (why_not(candidate).empty()) return candidate;
    begin = end + 1;
  }
  const bool is_here = why_not(fs::path(".") / name) != "no such file" && name.size() < kMaxShown;
  refuse_program(name, is_here ? "not in PATH; a file of this folder is ./" + name : "not in PATH");
}

}  // namespace lockstep::launch
