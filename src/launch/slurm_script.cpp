#include <lockstep/launch/slurm_script.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string_view>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& expected, const std::string& got) {
  throw ConfigError("slurm-script", {.what = option, .expected = expected, .got = "\"" + got + "\""});
}

void require_positive(const std::string& option, std::optional<int> value) {
  if (value && *value < 1) refuse(option, "a number >= 1", std::to_string(*value));
}

struct Form {
  const char* option;
  const std::string& value;
  const char* pattern;
  const char* expected;
};

void require_form(const Form& form) {
  if (form.value.empty() || std::regex_match(form.value, std::regex(form.pattern))) return;
  refuse(form.option, form.expected, form.value);
}

// SLURM refuses some of these with a number only, and a line break would begin another line of the script.
void check(const SlurmScriptOptions& o) {
  const std::array<Form, 9> forms{{
      {"--time", o.time, R"(\d+|(\d+:)?\d+:\d+|\d+-\d+(:\d+){0,2}|UNLIMITED)",
       "MINUTES, [HOURS:]MINUTES:SECONDS or DAYS-HOURS[:MINUTES[:SECONDS]]"},
      {"--signal", o.signal, R"((SIG)?(USR1|USR2|HUP|TERM|INT|CONT|\d{1,2})@\d{1,5}|none)",
       "a signal and seconds, such as USR1@90, or none"},
      {"--array", o.array, R"(\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%\d+)?)",
       "numbers: 0-3, 1,5,9 or 0-15:4%2"},
      {"--mem", o.mem, R"(\d+[KMGT]?)", "a number and K, M, G or T"},
      {"--job-name", o.job_name, R"([^\s"'`\\$/]+)", "one word without quotes and slashes"},
      {"--partition", o.partition, R"([\w.,-]+)", "names of partitions, with commas between them"},
      {"--account", o.account, R"([\w.@-]+)", "the name of an account"},
      {"--qos", o.qos, R"([\w.-]+)", "the name of a quality of service"},
      {"--constraint", o.constraint, R"([\w.,&|*()\[\]-]+)", "features of nodes, such as a100&nvlink"},
  }};
  for (const auto& form : forms) require_form(form);
  require_positive("--nodes", o.nodes);
  require_positive("--ntasks-per-node", o.ntasks_per_node);
  require_positive("--gpus-per-node", o.gpus_per_node);
  require_positive("--cpus-per-task", o.cpus_per_task);
  if (o.logs.find_first_of("\n\r\"") != std::string::npos) refuse("--logs", "a folder's name", o.logs);
  if (o.command.empty() || o.command.front().empty())
    refuse("PROGRAM", "a program behind the flags, such as ./train fit", "");
}

std::string escaped(std::string_view word, std::string_view special) {
  std::string text;
  for (const char letter : word) {
    if (special.find(letter) != std::string_view::npos) text += '\\';
    text += letter;
  }
  return text;
}

// The word in double quotes, in which the shell expands only variables of SLURM; any other "$" is escaped.
std::string expanding(const std::string& word) {
  const std::regex others(R"(\$(?!SLURM_|\{SLURM_))");
  return '"' + std::regex_replace(escaped(word, "\\\"`"), others, "\\$$") + '"';
}

std::string quoted(const std::string& word) {
  if (word.find("$SLURM_") != std::string::npos || word.find("${SLURM_") != std::string::npos)
    return expanding(word);
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./,:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

class Directives {
 public:
  void add(const std::string& option, const std::string& value) {
    if (!value.empty()) text_ << "#SBATCH --" << option << '=' << value << '\n';
  }
  void add(const std::string& option, std::optional<int> value) {
    if (value) add(option, std::to_string(*value));
  }
  void add_flag(const std::string& option) { text_ << "#SBATCH --" << option << '\n'; }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

bool is_plain(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
         std::string_view("._-+").find(letter) != std::string_view::npos;
}

// Later starts of a job append to the output of the first one.
std::string output_of(const SlurmScriptOptions& o) {
  const std::string name = o.array.empty() ? "%x-%j.out" : "%x-%A_%a.out";
  return o.logs.empty() ? name : (std::filesystem::path(o.logs) / name).string();
}

std::string directives(const SlurmScriptOptions& o) {
  auto program = std::filesystem::path(o.command.front()).filename().string();
  std::ranges::replace_if(
      program, [](char letter) { return !is_plain(letter); }, '_');
  Directives lines;
  lines.add("job-name", o.job_name.empty() ? program : o.job_name);
  lines.add("nodes", o.nodes);
  lines.add("ntasks-per-node", o.ntasks_per_node ? o.ntasks_per_node : o.gpus_per_node.value_or(1));
  lines.add("gpus-per-node", o.gpus_per_node);
  lines.add("cpus-per-task", o.cpus_per_task);
  lines.add("mem", o.mem);
  lines.add("time", o.time);
  lines.add("signal", o.signal == "none" ? "" : o.signal);
  lines.add_flag(o.requeue ? "requeue" : "no-requeue");
  lines.add("partition", o.partition);
  lines.add("account", o.account);
  lines.add("qos", o.qos);
  lines.add("constraint", o.constraint);
  lines.add("array", o.array);
  lines.add("output", output_of(o).find(' ') == std::string::npos ? output_of(o) : '"' + output_of(o) + '"');
  lines.add("open-mode", "append");
  return lines.text();
}

std::string last_line(const SlurmScriptOptions& o) {
  // A signal to the script itself reaches srun, which passes it on; srun takes no --cpus-per-task from
  // sbatch.
  std::string line = "exec srun --kill-on-bad-exit=1";
  if (o.cpus_per_task) line += " --cpus-per-task=" + std::to_string(*o.cpus_per_task);
  for (const auto& word : o.command) line += ' ' + quoted(word);
  return line + '\n';
}

}  // namespace

std::string slurm_script(const SlurmScriptOptions& options) {
  check(options);
  std::string text = "#!/bin/bash\n" + directives(options) + "\nset -e\n";
  for (const auto& line : options.setup) text += line + '\n';
  return text + last_line(options);
}

}  // namespace lockstep
