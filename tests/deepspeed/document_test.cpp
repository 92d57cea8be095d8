// docs/deepspeed.md has a row for every key.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/base/option_visitor.h>
#include <lockstep/deepspeed/config.h>

#include "support/paths.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

/// `SECTION/KEY` for each row of a table that begins with a key in backticks, below `### SECTION, SECTION`.
std::set<std::string> documented_keys() {
  std::set<std::string> keys;
  std::vector<std::string> sections;
  std::istringstream text(test::content(test::in_repository("docs/deepspeed.md")));
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("### ")) {
      sections = {line.substr(4)};
      const auto comma = line.find(", ");
      const auto kind = line.find(": ") == std::string::npos ? "" : line.substr(4, line.find(": ") - 2);
      if (comma != std::string::npos) sections = {line.substr(4, comma - 4), kind + line.substr(comma + 2)};
    } else if (line.starts_with("| `")) {
      for (const auto& section : sections) keys.insert(section + "/" + line.substr(3, line.find('`', 3) - 3));
    }
  }
  return keys;
}

class KeysBySection final : public OptionVisitor {
 public:
  std::set<std::string> all;

  void visit_field(OptionField& field) override { all.insert(section_ + "/" + field.name()); }
  void visit_group(std::string_view name, std::string_view, const Members& members) override {
    inside(section_ == kTop ? std::string(name) : section_ + "." + std::string(name), members);
  }
  void visit_choice(OptionChoice& choice) override {
    for (std::size_t row = 0; row < choice.rows().size(); ++row)
      inside(choice.name() + ": " + choice.rows()[row].name,
             [&](OptionVisitor& visitor) { choice.describe_row(visitor, row); });
  }

 private:
  static constexpr const char* kTop = "Top level";

  void inside(const std::string& section, const Members& members) {
    const auto outer = std::exchange(section_, section);
    members(*this);
    section_ = outer;
  }

  std::string section_ = kTop;
};

TEST(DeepSpeedDocument, HasARowForEveryKeyAndNoOther) {
  KeysBySection described;
  DeepSpeedConfig config;
  describe(described, config);
  const auto documented = documented_keys();
  for (const auto& key : described.all) EXPECT_TRUE(documented.contains(key)) << key << " is not documented";
  for (const auto& key : documented) EXPECT_TRUE(described.all.contains(key)) << key << " does not exist";
}

// Words in backticks of the chapter that says what training does with the keys.
std::set<std::string> words_of_effects() {
  const auto all = test::content(test::in_repository("docs/deepspeed.md"));
  const auto begin = all.find("## What training does with it");
  std::istringstream text(all.substr(begin, all.find("\n## ", begin + 1) - begin));
  std::set<std::string> words;
  bool is_quoted = false;
  for (std::string part; std::getline(text, part, '`'); is_quoted = !is_quoted) {
    if (!is_quoted) continue;
    std::istringstream quoted(part);
    for (std::string word; std::getline(quoted, word, ' ');) {
      if (word.ends_with(':')) word.pop_back();
      words.insert(word.substr(word.rfind('.') == std::string::npos ? 0 : word.rfind('.') + 1));
    }
  }
  return words;
}

TEST(DeepSpeedDocument, SaysOfEveryKeyWhatTrainingDoesWithIt) {
  KeysBySection described;
  DeepSpeedConfig config;
  describe(described, config);
  const auto words = words_of_effects();
  constexpr const char* kWholeSections[] = {"optimizer",      "scheduler",    "flops_profiler", "tensorboard",
                                            "csv_monitor",    "comms_logger", "timers",         "amp",
                                            "torch_autocast", "checkpoint",   "data_types"};
  for (const auto& key : described.all) {
    const auto is_of = [&](const char* section) { return key.starts_with(section); };
    if (std::ranges::any_of(kWholeSections, is_of)) continue;
    EXPECT_TRUE(words.contains(key.substr(key.find('/') + 1))) << key;
  }
}

}  // namespace
}  // namespace lockstep
