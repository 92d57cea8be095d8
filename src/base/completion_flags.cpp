#include "base/completion_flags.h"

#include <algorithm>

#include <lockstep/base/completion.h>

#include "base/option_keys.h"

namespace lockstep {
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
