// The command line, parsed with CLI11: it splits the words into flags; values, errors and help are handled
// here.
#include <lockstep/base/command_line.h>

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/options.h>

#include "base/format.h"
#include "base/object_flags.h"
#include "base/option_keys.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

struct Flag {
  bool is_bool = false;
  bool is_list = false;
  bool is_open = false;     // the flag is below an open root, and its type is unknown
  bool is_objects = false;  // of a list of objects; see object_flags.h
  std::string expected = {};
  std::string choice = {};  // the flag that it depends on, if any
  Words only_for = {};      // values of that flag that have it
};
using Flags = std::map<std::string, Flag>;  // by key

constexpr auto kConfig = "config";
constexpr auto kCompletion = "completion";
constexpr std::array<std::string_view, 4> kSwitches{"--help", "-h", "--print_config", "--version"};

std::string expected_by(const OptionInfo& option) {
  return option.type + (option.accepted.empty() ? "" : ", " + option.accepted);
}

// The alternatives of a choice may share a key with different types: it counts as a bool, or a list, if it is
// one in all of them.
Flags flags_of(const OptionTree& tree) {
  Flags flags;
  for (const auto& option : tree.list()) {
    auto& flag = flags
                     .try_emplace(option.key, Flag{.is_bool = true,
                                                   .is_list = true,
                                                   .expected = expected_by(option),
                                                   .choice = option.choice})
                     .first->second;
    flag.only_for.insert(flag.only_for.end(), option.only_for.begin(), option.only_for.end());
    flag.is_bool &= option.is_bool;
    flag.is_list &= option.is_list;
    flag.is_objects |= option.is_objects;
    if (option.is_objects) flags[option.key + std::string(kAppends)] = flag;
  }
  return flags;
}

// The keys of lists of objects.
Words object_keys(const Flags& flags) {
  Words keys;
  for (const auto& [key, flag] : flags) {
    if (flag.is_objects && !key.ends_with(kAppends)) keys.push_back(key);
  }
  return keys;
}

// Takes the flags of lists of objects out of `words`, in which every flag is followed by its value: the order
// of these counts.
std::vector<Assignment> take_objects(Words& words, const Flags& flags) {
  std::vector<ObjectFlags> lists;
  for (const auto& key : object_keys(flags)) lists.emplace_back(key);
  Words others;
  for (std::size_t i = 0; i < words.size(); ++i) {
    others.push_back(words[i]);
    if (i + 1 == words.size() || !words[i].starts_with("--") || !flags.contains(words[i].substr(2))) continue;
    const auto& value = words[++i];
    const auto list =
        std::ranges::find_if(lists, [&](const ObjectFlags& one) { return one.has(others.back().substr(2)); });
    if (list == lists.end()) {
      others.push_back(value);
    } else {
      list->take(others.back().substr(2), value);
      others.pop_back();
    }
  }
  words = std::move(others);
  std::vector<Assignment> assignments;
  for (const auto& list : lists) {
    if (auto assignment = list.assignment()) assignments.push_back(std::move(*assignment));
  }
  return assignments;
}

std::string name_in(const std::string& word) { return word.substr(0, word.find('=')); }

// Adds such flags for the unknown keys below open roots that `words` name.
void open_flags(Flags& flags, const Words& words, const Words& roots, const Flag& flag) {
  for (const auto& word : words) {
    const auto below = [&](const std::string& root) { return word.starts_with("--" + root + "."); };
    if (std::ranges::any_of(roots, below)) flags.try_emplace(name_in(word).substr(2), flag);
  }
}

[[noreturn]] void throw_usage(const std::string& what, const std::string& expected, const std::string& got,
                              const std::string& hint) {
  throw ConfigError("options", {.what = what, .expected = expected, .got = got, .where = {}, .hint = hint});
}

// The key of the flag `word`; nothing where `word` is no flag or the flag takes no value.
std::optional<std::string> key_in(const std::string& word, const Flags& flags) {
  const auto name = name_in(word);
  if (name == "-c") return kConfig;
  const auto key = name.starts_with("--") ? name.substr(2) : "";
  return flags.contains(key) ? std::optional(key) : std::nullopt;
}

// The value in the word after a flag, or nothing when the flag is bare.
std::optional<std::string> value_after(const Flag& flag, const Words& words, std::size_t i) {
  if (i + 1 == words.size()) return std::nullopt;
  const auto& next = words[i + 1];
  if (flag.is_bool && !OptionType<bool>::parse(next) && !detail::means_null({.text = next}))
    return std::nullopt;
  return next.starts_with("--") ? std::nullopt : std::optional(next);
}

[[noreturn]] void refuse_bare(const Flag& flag, const Words& words, std::size_t i) {
  const bool is_last = i + 1 == words.size();
  throw_usage("flag " + words[i] + " needs a value", flag.expected,
              is_last ? "nothing" : '"' + words[i + 1] + '"',
              is_last ? "" : "a value that begins with -- is given as " + words[i] + "=VALUE");
}

void refuse_value_of_switch(const std::string& word) {
  const auto equals = word.find('=');
  const bool is_switch = std::ranges::count(kSwitches, word.substr(0, equals)) > 0;
  if (is_switch && equals != std::string::npos)
    throw_usage("flag " + word.substr(0, equals) + " takes no value", "", '"' + word.substr(equals + 1) + '"',
                "");
}

// Every flag followed by its value as a word of its own: `--a=b` is `--a b`, a bare bool `--a true`, -c
// --config.
Words with_values(const Words& words, const Flags& flags) {
  Words result;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    const auto key = key_in(word, flags);
    if (!key) {
      refuse_value_of_switch(word);
      result.push_back(word);
      continue;
    }
    result.push_back("--" + *key);
    const auto& flag = flags.at(*key);
    if (const auto equals = word.find('='); equals != std::string::npos) {
      result.push_back(word.substr(equals + 1));
    } else if (const auto value = value_after(flag, words, i)) {
      result.push_back(*value);
      ++i;
    } else if (flag.is_bool || flag.is_open) {
      result.push_back("true");
    } else {
      refuse_bare(flag, words, i);
    }
  }
  return result;
}

class Parser {
 public:
  Parser(const Flags& flags, const CommandLineInfo& info) : flags_(flags), info_(info) {
    app_.set_help_flag();
    app_.allow_extras();
    for (const auto& [key, flag] : flags) add_option(key == kConfig ? "-c,--config" : "--" + key);
    app_.add_flag("-h,--help");
    app_.add_flag("--print_config");
    if (!info.version.empty()) app_.add_flag("--version");
  }

  void parse(Words words) {
    try {
      std::ranges::reverse(words);  // CLI11 expects them in reverse order
      app_.parse(std::move(words));
    } catch (const CLI::Error& error) {
      throw_usage("the command line cannot be read", "", error.what(), "see --help");
    }
    for (const auto& word : app_.remaining()) take_extra(word);
  }

  bool has(const std::string& flag) const { return app_.get_option_no_throw(flag) && app_.count(flag) > 0; }
  Words files() const { return app_.get_option("-c")->results(); }
  std::string shell() const { return app_.get_option("--completion")->results().back(); }
  const std::string& verb() const { return verb_; }

  std::vector<Assignment> assignments() const {
    std::vector<Assignment> result;
    for (const auto& [key, flag] : flags_) {
      if (key == kConfig || key == kCompletion) continue;
      auto values = app_.get_option("--" + key)->results();
      if (flag.is_list && values.size() > 1) values = {joined(values, ",")};
      for (auto& value : values) {
        result.push_back(
            {key, {.text = std::move(value)}, {.kind = Source::Kind::kFlag, .name = "--" + key}});
      }
    }
    return result;
  }

 private:
  void add_option(const std::string& name) {
    app_.add_option(name)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
  }

  void take_extra(const std::string& word) {
    if (word.starts_with("-")) refuse_flag(name_in(word));
    const bool is_verb = std::ranges::count(info_.verbs, word) > 0;
    if (!is_verb || !verb_.empty()) refuse_word(word);
    verb_ = word;
  }

  [[noreturn]] void refuse_flag(const std::string& name) const {
    Words known{"help", "print_config"};
    for (const auto& [key, flag] : flags_)
      if (!is_of_other_choice(flag)) known.push_back(key);
    const auto key = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    const auto instead = info_.instead_of ? info_.instead_of(key) : std::string();
    if (is_group(key))
      throw_unknown("flag " + name, "",
                    "it is a group of options: give --" + key + ".OPTION VALUE, or a file by --config");
    throw_unknown("flag " + name, "",
                  instead.empty() ? did_you_mean(nearest_key(key, known), "--") : instead);
  }

  bool is_group(const std::string& key) const {
    return !key.empty() &&
           std::ranges::any_of(flags_, [&](const auto& flag) { return flag.first.starts_with(key + "."); });
  }

  // Whether the command line names an alternative that has no such flag.
  bool is_of_other_choice(const Flag& flag) const {
    if (flag.choice.empty()) return false;
    const auto given = app_.get_option("--" + flag.choice)->results();
    if (given.empty()) return false;
    return std::ranges::none_of(
        flag.only_for, [&](const std::string& name) { return detail::same_name(name, given.back()); });
  }

  [[noreturn]] void refuse_word(const std::string& word) const {
    const auto accepted = info_.verbs.empty() ? "flags only" : "at most " + detail::one_of(info_.verbs);
    const bool is_second = std::ranges::count(info_.verbs, word) > 0;
    throw_usage("unexpected word on the command line", accepted, '"' + word + '"',
                is_second ? "the first is " + verb_ : did_you_mean(nearest_name(word, info_.verbs)));
  }

  const Flags& flags_;
  const CommandLineInfo& info_;
  CLI::App app_;
  std::string verb_;
};

Shell shell_of(const std::string& name) {
  const auto shell = OptionType<Shell>::parse(name);
  if (!shell) throw_usage("flag --completion", shell.error(), '"' + name + '"', "");
  return *shell;
}

void append(std::vector<Assignment>& to, std::vector<Assignment> more) {
  std::ranges::move(more, std::back_inserter(to));
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const OptionTree& tree,
                               const CommandLineInfo& info) {
  const Words words(argv + std::min(argc, 1), argv + argc);
  auto flags = flags_of(tree);
  open_flags(flags, words, info.open_roots, {.is_open = true});
  open_flags(flags, words, object_keys(flags), {.expected = "the value of an option of the class before"});
  flags[kConfig] = {.expected = "the path of a YAML file"};
  flags[kCompletion] = {.expected = OptionType<Shell>::accepted()};
  auto with_their_values = with_values(words, flags);
  auto objects = take_objects(with_their_values, flags);
  std::erase_if(flags, [](const auto& flag) { return flag.first.ends_with(kAppends); });
  Parser parser(flags, info);
  parser.parse(std::move(with_their_values));

  CommandLine line{.verb = parser.verb(), .print_config = parser.has("--print_config")};
  if (parser.has("--help")) {
    line.text_to_print = help_text(tree, info);
  } else if (parser.has("--completion")) {
    line.text_to_print = completion_script(tree, info, shell_of(parser.shell()));
  } else if (parser.has("--version")) {
    line.text_to_print = info.program + " " + info.version + "\n";
  }
  if (line.text_to_print) return line;
  for (const auto& file : parser.files()) append(line.assignments, read_yaml_file(file));
  append(line.assignments,
         read_environment(env::with_prefix(variable_of("")), tree, info.strict_environment_roots));
  append(line.assignments, parser.assignments());
  append(line.assignments, std::move(objects));
  return line;
}

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
  for (const auto& [name, value] : option.other_defaults) text += fmt::format(", of {} {}", name, value);
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
