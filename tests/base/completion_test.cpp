// What the scripts for shells hold; tests/programs/completion_test.py lets a shell use one.
#include <lockstep/base/command_line.h>

#include <gmock/gmock.h>

#include "base/completion.h"
#include "base/demo_options.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const CommandLineInfo kMyTrainInfo{.program = "my-train", .verbs = {"fit", "test"}, .version = "1"};

std::string script(Shell shell) {
  demo::Options options;
  return completion_script(demo::tree_of(options), kMyTrainInfo, shell);
}

CompletionFlag flag(const std::string& name) {
  demo::Options options;
  for (const auto& known : completion_flags(demo::tree_of(options), kMyTrainInfo))
    if (known.name == name) return known;
  ADD_FAILURE() << "no flag " << name;
  return {};
}

TEST(Completion, KnowsEveryFlagOnce) {
  demo::Options options;
  const auto tree = demo::tree_of(options);
  std::vector<std::string> names;
  for (const auto& known : completion_flags(tree, kMyTrainInfo)) names.push_back(known.name);
  std::vector<std::string> expected{"--config", "--completion", "--print_config", "--help", "--version"};
  for (const auto& key : tree.keys()) expected.push_back("--" + key);
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(expected));
}

TEST(Completion, KnowsTheWordsThatAFlagTakes) {
  EXPECT_THAT(flag("--demo.mode").words, ElementsAre("fast", "EXACT", "none"));
  EXPECT_THAT(flag("--demo.fast").words, ElementsAre("true", "false"));
  EXPECT_THAT(flag("--demo.verbose").words, ElementsAre("true", "false"));
  EXPECT_FALSE(flag("--demo.fast").needs_value);
  EXPECT_THAT(flag("--demo.epochs").words, ElementsAre());
  EXPECT_TRUE(flag("--demo.dir").takes_path);
  EXPECT_FALSE(flag("--help").takes_value);
  EXPECT_TRUE(flag("--demo.hidden").is_repeated);
}

TEST(Completion, OffersOnlyAlternativesThatThereAre) {
  EXPECT_THAT(flag("--demo.strategy").words, ElementsAre("plain", "pair", "pair_find_unused", "shard"));
  EXPECT_THAT(flag("--demo.strategy.size").words, ElementsAre("small", "big"));
}

TEST(Completion, WritesForThreeShells) {
  const auto bash = script(Shell::kBash);
  EXPECT_THAT(bash, HasSubstr("complete -F _lockstep_my_train my-train\n"));
  EXPECT_THAT(bash, HasSubstr("--demo.mode) words='fast EXACT none' ;;"));
  EXPECT_THAT(bash, HasSubstr("--config|-c) files=1 ;;"));
  const auto zsh = script(Shell::kZsh);
  EXPECT_THAT(zsh, HasSubstr("#compdef my-train\n"));
  EXPECT_THAT(zsh, HasSubstr("'--demo.mode=[Fast or exact]:value:(fast EXACT none)'"));
  EXPECT_THAT(zsh, HasSubstr("'--demo.epochs=[Stop after this many epochs; -1\\: no limit]:value: '"));
  EXPECT_THAT(zsh, HasSubstr("'*--config=[Read options from a YAML file]:value:_files'"));
  EXPECT_THAT(zsh, HasSubstr("'1:verb:(fit test)'"));
  const auto fish = script(Shell::kFish);
  EXPECT_THAT(fish,
              HasSubstr("complete -c my-train -l demo.mode -x -a 'fast EXACT none' -d 'Fast or exact'\n"));
  EXPECT_THAT(fish, HasSubstr("complete -c my-train -l config -s c -r -F"));
  EXPECT_THAT(fish, HasSubstr("-n __fish_use_subcommand -a 'fit test'"));
}

TEST(Completion, IsAskedForByAFlag) {
  demo::Options options;
  const auto tree = demo::tree_of(options);
  const auto parse = [&](std::vector<const char*> words) {
    words.insert(words.begin(), "my-train");
    return parse_command_line(static_cast<int>(words.size()), words.data(), tree, kMyTrainInfo);
  };
  EXPECT_EQ(parse({"--completion", "zsh"}).text_to_print, script(Shell::kZsh));
  EXPECT_EQ(parse({"--completion=bash"}).text_to_print, script(Shell::kBash));
  EXPECT_THAT(demo::config_error([&] {
                parse({"--completion", "tcsh"});
              }),
              AllOf(HasSubstr("--completion"), HasSubstr("bash, zsh, fish"), HasSubstr("tcsh")));
  EXPECT_THAT(demo::config_error([&] { parse({"--completion"}); }), HasSubstr("needs a value"));
}

}  // namespace
}  // namespace lockstep
