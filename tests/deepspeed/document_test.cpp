// docs/deepspeed.md has a row for every key.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep
