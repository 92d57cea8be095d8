// Every --trainer.* flag is a variable LOCKSTEP_TRAINER_*, too: the table is the list of options itself.
#include <gtest/gtest.h>
#include <lockstep/base/options.h>
#include <lockstep/lockstep.h>

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

// Texts of all types: each option takes at least one of them that is not its default.
const Words kCandidates{
    "7",         "0.25",     "3s",   "true",     "false",         "value",   "fp16_compress",
    "powerSGD",  "ddp",      "warn", "jsonl",    "spawn",         "fast",    "simple",
    "lightning", "16-mixed", "gloo", "NO_SHARD", "BACKWARD_POST", "sharded", "bfloat16",
    "3",         "nvme",     "full", "error",    "high",          "Timer"};
constexpr auto kWrong = "no such value";

std::string yaml_of(const Words& words) {
  TrainerOptions options;
  OptionTree tree;
  tree.add("trainer", options);
  std::vector<const char*> argv{"train"};
  for (const auto& word : words) argv.push_back(word.c_str());
  const auto line = parse_command_line(static_cast<int>(argv.size()), argv.data(), tree, {});
  tree.apply(line.assignments);
  return tree.to_yaml();
}

// Sets a variable for as long as it lives.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::string& value) : name_(std::move(name)) {
    env::set(name_, value);
  }
  ~ScopedVariable() { env::unset(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
};

std::string yaml_with(const std::string& variable, const std::string& value, const Words& words) {
  const ScopedVariable scope(variable, value);
  return yaml_of(words);
}

std::vector<OptionInfo> trainer_options() {
  TrainerOptions options;
  OptionTree tree;
  tree.add("trainer", options);
  return tree.list();
}

// The flags of the choice that has the option.
Words flags_for(const OptionInfo& option) {
  if (option.only_for.empty()) return {};
  return {"--" + option.choice, option.only_for.front()};
}

// A text that changes the option, and what the configuration then is.
std::optional<std::pair<std::string, std::string>> changed_by_flag(const OptionInfo& option) {
  const auto given = flags_for(option);
  const auto unchanged = yaml_of(given);
  for (const auto& text : kCandidates) {
    auto words = given;
    words.push_back("--" + option.key + "=" + text);
    try {
      auto yaml = yaml_of(words);
      if (yaml != unchanged) return std::pair(text, std::move(yaml));
    } catch (const ConfigError&) {
    }
  }
  return std::nullopt;
}

bool takes_any_text(const OptionInfo& option) {
  return option.type.starts_with("text") || option.type.starts_with("path");
}

TEST(Environment, EveryVariableOfTheTrainerWorksAsItsFlag) {
  const auto options = trainer_options();
  EXPECT_GT(options.size(), 60U);
  for (const auto& option : options) {
    SCOPED_TRACE(variable_of(option.key));
    const auto changed = changed_by_flag(option);
    ASSERT_TRUE(changed) << option.key << ": no candidate changes it";
    EXPECT_EQ(yaml_with(variable_of(option.key), changed->first, flags_for(option)), changed->second);
  }
}

TEST(Environment, FlagsGoBeforeVariables) {
  EXPECT_EQ(yaml_with("LOCKSTEP_TRAINER_MAX_EPOCHS", "7", {"--trainer.max_epochs", "9"}),
            yaml_of({"--trainer.max_epochs", "9"}));
}

TEST(Environment, WrongValuesAreNamedWithTheirVariable) {
  for (const auto& option : trainer_options()) {
    if (takes_any_text(option)) continue;
    const auto variable = variable_of(option.key);
    try {
      yaml_with(variable, kWrong, flags_for(option));
      ADD_FAILURE() << variable << " took \"" << kWrong << '"';
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(variable), text.npos) << text;
      EXPECT_NE(text.find(kWrong), text.npos) << text;
      EXPECT_NE(text.find("expected"), text.npos) << text;
    }
  }
}

TEST(Environment, AVariableThatIsNoOptionIsNamedWithTheNearestOne) {
  try {
    yaml_with("LOCKSTEP_TRAINER_MAX_EPOCH", "7", {});
    ADD_FAILURE() << "taken";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("LOCKSTEP_TRAINER_MAX_EPOCHS"), text.npos) << text;
  }
}

}  // namespace
}  // namespace lockstep
