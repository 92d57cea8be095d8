// Completion scripts for bash, zsh and fish. Each contains all flags and words, so that no program runs while
// a user types.
#include "base/completion.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include <lockstep/base/command_line.h>
#include <lockstep/base/option_objects.h>

#include "base/format.h"
#include "base/option_keys.h"

namespace lockstep {
namespace {

using CompletionFlags = std::vector<CompletionFlag>;

// The name of the completion function, with the characters that shells accept.
std::string function_of(const std::string& program) {
  auto name = "_lockstep_" + program;
  std::ranges::replace_if(
      name, [](unsigned char letter) { return std::isalnum(letter) == 0; }, '_');
  return name;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

// Quotes for bash and zsh, whose single quotes have no escapes.
std::string shell_quoted(const std::string& text) { return "'" + replaced(text, "'", "'\\''") + "'"; }
std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string words_of(const CompletionFlags& flags) {
  std::string words;
  for (const auto& flag : flags) words += flag.name + ' ';
  return words + "-c -h";
}

// The cases that complete the value of a flag. bash takes a flag and the `=` behind it for separate words.
std::string bash_cases(const CompletionFlags& flags) {
  std::string cases;
  for (const auto& flag : flags) {
    if (!flag.takes_value) continue;
    const auto name = flag.name == "--config" ? flag.name + "|-c" : flag.name;
    const auto act = flag.takes_path      ? std::string("files=1")
                     : flag.words.empty() ? std::string("return")
                                          : "words=" + shell_quoted(joined(flag.words, " "));
    cases += fmt::format("    {}) {}{} ;;\n", name, act, flag.needs_value ? "" : "; optional=1");
  }
  return cases;
}

std::string bash_script(const CompletionFlags& flags, const CommandLineInfo& info) {
  constexpr auto kScript = R"(# Completes {program} in bash: source <({program} --completion bash)
{function}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} flag=${{COMP_WORDS[COMP_CWORD-1]}} words='' files='' optional=''
  COMPREPLY=()
  if [[ $current == = ]]; then
    current=''
  elif [[ $flag == = ]]; then
    flag=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  case $flag in
{cases}  esac
  if [[ $files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
    return
  fi
  if [[ ! $words || ( $optional && $current == -* ) ]]; then
    words={flags}
    if [[ $current != -* ]]; then words={verbs}" $words"; fi
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -F {function} {program}
)";
  return fmt::format(kScript, fmt::arg("program", info.program),
                     fmt::arg("function", function_of(info.program)), fmt::arg("cases", bash_cases(flags)),
                     fmt::arg("flags", shell_quoted(words_of(flags))),
                     fmt::arg("verbs", shell_quoted(joined(info.verbs, " "))));
}

// A flag as zsh's _arguments takes it: `*--flag=[help]:value:(a b)`.
std::string zsh_spec(const CompletionFlag& flag) {
  auto help = flag.help;
  for (const auto* special : {"\\", "[", "]", ":"})
    help = replaced(help, special, std::string("\\") + special);
  // A plus at the end of a name would say that the value is part of the same word.
  const auto name = replaced(flag.name, "+", "\\+");
  auto spec = (flag.is_repeated ? "*" : "") + name + (flag.takes_value ? "=" : "") + "[" + help + "]";
  if (!flag.takes_value) return shell_quoted(spec);
  spec += flag.needs_value ? ":value:" : "::value:";
  if (flag.takes_path) return shell_quoted(spec + "_files");
  return shell_quoted(flag.words.empty() ? spec + " " : spec + "(" + joined(flag.words, " ") + ")");
}

std::string zsh_script(const CompletionFlags& flags, const CommandLineInfo& info) {
  const auto function = function_of(info.program);
  auto script =
      fmt::format("#compdef {0}\n# Completes {0} in zsh: source <({0} --completion zsh)\n{1}() {{\n",
                  info.program, function);
  script += "  _arguments -S \\\n";
  for (const auto& flag : flags) script += "    " + zsh_spec(flag) + " \\\n";
  script += "    '*-c[Read options from a YAML file]:file:_files' '-h[Print every option and stop]'";
  if (!info.verbs.empty()) script += " \\\n    " + shell_quoted("1:verb:(" + joined(info.verbs, " ") + ")");
  return script + fmt::format("\n}}\ncompdef {} {}\n", function, info.program);
}

std::string fish_script(const CompletionFlags& flags, const CommandLineInfo& info) {
  auto script = fmt::format("# Completes {0} in fish: {0} --completion fish | source\ncomplete -c {0} -f\n",
                            info.program);
  if (!info.verbs.empty()) {
    script += fmt::format("complete -c {} -n __fish_use_subcommand -a {}\n", info.program,
                          fish_quoted(joined(info.verbs, " ")));
  }
  for (const auto& flag : flags) {
    script += fmt::format("complete -c {} -l {}", info.program, flag.name.substr(2));
    if (flag.name == "--config") script += " -s c";
    if (flag.name == "--help") script += " -s h";
    if (flag.takes_path) script += " -r -F";
    if (flag.needs_value && !flag.takes_path) script += " -x";
    if (!flag.words.empty()) script += " -a " + fish_quoted(joined(flag.words, " "));
    script += " -d " + fish_quoted(flag.help) + "\n";
  }
  return script;
}

}  // namespace

std::span<const OptionName<Shell>> option_names(Shell) {
  static constexpr OptionName<Shell> kNames[] = {
      {"bash", Shell::kBash}, {"zsh", Shell::kZsh}, {"fish", Shell::kFish}};
  return kNames;
}

std::string completion_script(const OptionTree& tree, const CommandLineInfo& info, Shell shell) {
  const auto flags = completion_flags(tree, info);
  switch (shell) {
    case Shell::kBash:
      return bash_script(flags, info);
    case Shell::kZsh:
      return zsh_script(flags, info);
    case Shell::kFish:
      break;
  }
  return fish_script(flags, info);
}

namespace {

void add_words(CompletionFlag& flag, const std::vector<std::string>& words) {
  for (const auto& word : words)
    if (std::ranges::count(flag.words, word) == 0) flag.words.push_back(word);
}

class Collector final : public KeyedVisitor {
 public:
  explicit Collector(std::vector<CompletionFlag>& flags) : flags_(flags) {}

  void visit_field(OptionField& field) override {
    const auto info = field.info();
    auto& flag = flag_of(field.name(), field.help());
    add_words(flag, info.is_bool ? std::vector<std::string>{"true", "false"} : info.names);
    flag.takes_path = flag.takes_path || info.type.find("path") != std::string::npos;
    flag.needs_value = flag.needs_value && !info.is_bool;
    flag.is_repeated = flag.is_repeated || info.is_list;
  }

  void visit_choice(OptionChoice& choice) override {
    auto& flag = flag_of(choice.name(), choice.help());
    for (const auto& row : choice.rows())
      if (row.unavailable.empty()) add_words(flag, {row.name});
    for (std::size_t row = 0; row < choice.rows().size(); ++row) {
      if (choice.is_canonical(row)) inside(choice.name(), [&] { choice.describe_row(*this, row); });
    }
  }

  void visit_objects(OptionObjects& list) override {
    for (const auto& name : {list.name(), list.name() + std::string(kAppends)}) {
      auto& flag = flag_of(name, list.help());
      add_words(flag, list.class_names());
      flag.is_repeated = true;
    }
  }

 private:
  CompletionFlag& flag_of(std::string_view name, const std::string& help) {
    const auto flag = "--" + key(name);
    const auto known = std::ranges::find(flags_, flag, &CompletionFlag::name);
    if (known != flags_.end()) return *known;
    flags_.push_back({.name = flag, .help = help});
    return flags_.back();
  }

  std::vector<CompletionFlag>& flags_;
};

CompletionFlag a_switch(std::string name, std::string help) {
  return {.name = std::move(name), .help = std::move(help), .takes_value = false, .needs_value = false};
}

}  // namespace

std::vector<CompletionFlag> completion_flags(const OptionTree& tree, const CommandLineInfo& info) {
  std::vector<CompletionFlag> flags{
      {.name = "--config", .help = "Read options from a YAML file", .takes_path = true, .is_repeated = true},
      {.name = "--completion", .help = "Print a script for a shell", .words = OptionType<Shell>::names()},
      a_switch("--print_config", "Print all options as YAML and stop"),
      a_switch("--help", "Print every option and stop")};
  if (!info.version.empty()) flags.push_back(a_switch("--version", "Print the version and stop"));
  Collector collector(flags);
  tree.visit(collector);
  return flags;
}

}  // namespace lockstep
