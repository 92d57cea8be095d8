// The text of --help.
#include <algorithm>

#include <fmt/format.h>

#include <lockstep/base/command_line.h>

#include "base/format.h"
#include "base/option_keys.h"

namespace lockstep {
namespace {

std::string usage(const CommandLineInfo& info) {
  const auto verbs = info.verbs.empty() ? "" : " [" + joined(info.verbs, "|") + "]";
  auto text = fmt::format("Usage: {}{} [FLAGS]\n", info.program, verbs);
  if (!info.description.empty()) text += info.description + "\n";
  return text;
}

std::string general(const CommandLineInfo& info) {
  std::string text = "\nGeneral:\n";
  const auto add = [&](std::string_view flag, std::string_view help) {
    text += fmt::format("  {:<24} {}\n", flag, help);
  };
  add("-c, --config FILE", "Read options from a YAML file; may be repeated, later files win");
  add("--print_config", "Print all options as YAML and stop");
  add("--completion SHELL", "Print a script that completes flags in bash, zsh or fish, and stop");
  add("-h, --help", "Print this text and stop");
  if (!info.version.empty()) add("--version", "Print the version and stop");
  return text;
}

std::string entry(const OptionInfo& option) {
  auto text = fmt::format("  --{} <{}>  (default {}", option.key, option.type, option.default_value);
  const bool is_name = option.is_choice || option.type.find("name") != std::string::npos;
  if (!option.accepted.empty()) text += (is_name ? "; one of " : "; ") + option.accepted;
  if (!option.only_for.empty()) text += "; only for " + joined(option.only_for);
  return text + ")\n      " + option.help + "\n";
}

// The innermost group that holds `key`: the longest one.
std::string group_of(const std::vector<OptionGroup>& groups, const std::string& key) {
  std::string innermost;
  for (const auto& group : groups) {
    if (is_at_or_below(key, group.key) && group.key.size() > innermost.size()) innermost = group.key;
  }
  return innermost;
}

}  // namespace

std::string help_text(const OptionTree& tree, const CommandLineInfo& info) {
  auto groups = tree.groups();
  groups.insert(groups.begin(), OptionGroup{.key = "", .help = "Program"});
  auto text = usage(info) + general(info);
  const auto options = tree.list();
  for (const auto& group : groups) {
    std::string entries;
    for (const auto& option : options) {
      if (group_of(groups, option.key) == group.key) entries += entry(option);
    }
    if (entries.empty()) continue;
    const auto title = group.help.empty() ? group.key : group.help;
    text += fmt::format("\n{}{}:\n{}", title, group.key.empty() ? "" : " (--" + group.key + ".*)", entries);
  }
  return text +
         "\nEvery option is also a YAML key and an environment variable: --a.b_c is LOCKSTEP_A_B_C.\n"
         "Defaults are those from before the program's own code has run: --print_config shows what that "
         "makes of "
         "them.\n";
}

}  // namespace lockstep
