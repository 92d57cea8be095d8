// Flags, files and environment together; help; and the proof that one description is enough.
#include <lockstep/base/command_line.h>

#include <gmock/gmock.h>
#include <lockstep/base/env.h>
#include <lockstep/base/options.h>

#include "base/demo_options.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

using demo::config_error;
using demo::tree_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

const CommandLineInfo kTrainInfo{.program = "train",
                                 .description = "Trains.",
                                 .verbs = {"fit", "test"},
                                 .version = "1.2.3",
                                 .strict_environment_roots = {"demo"},
                                 .open_roots = {"model"},
                                 .instead_of = [](std::string_view key) {
                                   return key == "demo.turns" ? "say demo.epochs" : std::string();
                                 }};

CommandLine parse(const Words& words, const OptionTree& tree) {
  std::vector<const char*> argv{"train"};
  for (const auto& word : words) argv.push_back(word.c_str());
  return parse_command_line(static_cast<int>(argv.size()), argv.data(), tree, kTrainInfo);
}

CommandLine parse(const Words& words) {
  demo::Options options;
  return parse(words, tree_of(options));
}

demo::Options read(const Words& words) {
  demo::Options options;
  const auto tree = tree_of(options);
  tree.apply(parse(words, tree).assignments);
  return options;
}

std::string refusal(const Words& words) {
  return config_error([&] { read(words); });
}

std::string write_file(const std::string& name, const std::string& text) {
  static const test::TemporaryFolder folder;
  return folder.file(name, text);
}

struct Rare {
  int every = 100;
};
void describe(OptionVisitor& v, Rare& o) { v.field("every", o.every, "How often", at_least(1)); }
struct Often {
  int every = 1;
};
void describe(OptionVisitor& v, Often& o) { v.field("every", o.every, "How often", at_least(1)); }
struct Turns {
  std::variant<Rare, Often> turn = Rare{};
};
constexpr Choice<std::variant<Rare, Often>> kTurns[] = {{"rare", Rare{}, "seldom"},
                                                        {"often", Often{}, "not so"}};
void describe(OptionVisitor& v, Turns& o) { v.choice("turn", o.turn, kTurns, "How it turns"); }

TEST(Help, TellsTheDefaultsOfAlternativesThatShareAnOption) {
  Turns turns;
  OptionTree tree;
  tree.add("", turns);
  EXPECT_THAT(
      help_text(tree, {.program = "demo"}),
      ::testing::HasSubstr("--turn.every <int>  (default 100, of often 1; >= 1; only for rare, often)"));
}

TEST(CommandLine, ReadsVerbAndFlags) {
  const auto line = parse({"fit", "--demo.epochs", "5", "--print_config"});
  EXPECT_EQ(line.verb, "fit");
  EXPECT_TRUE(line.print_config);
  ASSERT_EQ(line.assignments.size(), 1u);
  EXPECT_EQ(shown(line.assignments[0].source), "flag --demo.epochs");
  EXPECT_FALSE(line.text_to_print);
}

TEST(CommandLine, TakesEveryFormOfAValue) {
  EXPECT_EQ(read({"--demo.epochs=5"}).epochs, 5);
  EXPECT_EQ(read({"--demo.epochs", "-1"}).epochs, -1);
  EXPECT_EQ(read({"--demo.epochs=-1"}).epochs, -1);
  EXPECT_EQ(read({"--demo.name=--x=[y]"}).name, "--x=[y]");
  EXPECT_EQ(read({"--demo.name", "[a,b]"}).name, "[a,b]");
  EXPECT_EQ(read({"--demo.name", "{}"}).name, "{}");
  EXPECT_EQ(read({"--demo.name", "a", "fit"}).name, "a");
  EXPECT_EQ(read({"--demo.name="}).name, "");
  EXPECT_EQ(read({"--demo.name", ""}).name, "");
  EXPECT_EQ(read({"--demo.epochs", "4", "--demo.epochs", "5"}).epochs, 5);
}

TEST(CommandLine, TakesBareBools) {
  EXPECT_TRUE(read({"--demo.fast"}).fast);
  EXPECT_TRUE(read({"--demo.fast", "fit"}).fast);
  EXPECT_FALSE(read({"--demo.fast", "--demo.fast", "false"}).fast);
  EXPECT_FALSE(read({"--demo.fast=off"}).fast);
  EXPECT_EQ(read({"--demo.verbose", "fit"}).verbose, true);
  EXPECT_EQ(read({"--demo.verbose", "null", "fit"}).verbose, std::nullopt);
}

TEST(CommandLine, JoinsRepeatedLists) {
  EXPECT_EQ(read({"--demo.hidden", "4", "--demo.hidden=3,2"}).hidden, (std::vector{4, 3, 2}));
  EXPECT_EQ(read({"--demo.hidden", "[4,3]"}).hidden, (std::vector{4, 3}));
}

TEST(CommandLine, RefusesUnknownFlagsWithTheNearest) {
  EXPECT_EQ(refusal({"--demo.epoch", "3"}),
            "[options] unknown flag --demo.epoch; did you mean --demo.epochs?");
  EXPECT_EQ(refusal({"--epochs=3"}), "[options] unknown flag --epochs; did you mean --demo.epochs?");
  EXPECT_EQ(refusal({"--print-config"}),
            "[options] unknown flag --print-config; did you mean --print_config?");
  EXPECT_THAT(refusal({"--demo.strategy", "pair", "--demo.strategy.find", "true"}),
              HasSubstr("did you mean --demo.strategy.find_unused?"));
  EXPECT_THAT(refusal({"--demo.strategy", "shard", "--demo.strategy.find", "true"}),
              ::testing::Not(HasSubstr("find_unused")));
  EXPECT_EQ(refusal({"--demo.epo", "3"}).find("[options] unknown flag --demo.epo"), 0u);  // no abbreviations
  EXPECT_THAT(refusal({"-x"}), HasSubstr("unknown flag -x"));
  EXPECT_EQ(refusal({"--demo.turns", "2"}), "[options] unknown flag --demo.turns; say demo.epochs");
  EXPECT_THAT(refusal({"fit", "fit"}), HasSubstr("got \"fit\"; the first is fit"));
}

TEST(CommandLine, RefusesMissingValuesAndExtraWords) {
  EXPECT_EQ(refusal({"--demo.epochs"}),
            "[options] flag --demo.epochs needs a value; expected int, >= -1; got nothing");
  EXPECT_THAT(refusal({"--demo.name", "--demo.fast"}),
              AllOf(HasSubstr("flag --demo.name needs a value"), HasSubstr("got \"--demo.fast\""),
                    HasSubstr("--demo.name=VALUE")));
  EXPECT_EQ(refusal({"fits"}),
            "[options] unexpected word on the command line; expected at most one of fit, test; "
            "got \"fits\"; did you mean fit?");
  EXPECT_THAT(refusal({"fit", "test"}), HasSubstr("got \"test\""));
}

TEST(CommandLine, RefusesInItsOwnWords) {
  const std::string needed = " needs a value; expected the path of a YAML file; got ";
  EXPECT_EQ(refusal({"fit", "-c"}), "[options] flag -c" + needed + "nothing");
  EXPECT_EQ(refusal({"--config"}), "[options] flag --config" + needed + "nothing");
  EXPECT_THAT(refusal({"-c", "--demo.fast"}), HasSubstr("flag -c" + needed + "\"--demo.fast\""));
  EXPECT_EQ(refusal({"--help=yes"}), "[options] flag --help takes no value; got \"yes\"");
  EXPECT_EQ(refusal({"--print_config=3"}), "[options] flag --print_config takes no value; got \"3\"");
}

TEST(CommandLine, TakesValuesThatBeginWithADash) {
  EXPECT_EQ(read({"--demo.name", "-x"}).name, "-x");
  EXPECT_EQ(read({"--demo.name=-c"}).name, "-c");
  EXPECT_THAT(refusal({"-c", "-x"}), HasSubstr("-x"));
  const auto file = write_file("dash.yaml", "demo: {epochs: 7}");
  EXPECT_EQ(read({"-c=" + file}).epochs, 7);
  EXPECT_EQ(read({"-c" + file}).epochs, 7);
}

TEST(CommandLine, NamesTheFlagOfAWrongValue) {
  EXPECT_EQ(refusal({"--demo.epochs", "x"}),
            "[options] demo.epochs; expected an integer >= -1; got \"x\"; at flag --demo.epochs");
  EXPECT_THAT(refusal({"--demo.strategy.mode=fast"}),
              HasSubstr("belongs to shard, but demo.strategy is plain; at flag"));
}

TEST(CommandLine, LetsFlagsWinOverEnvironmentOverFilesOverCode) {
  const auto first = write_file("a.yaml", "demo: {epochs: 10, steps: 10, lr: 0.5, seed: 10}");
  const auto second = write_file("b.yaml", "demo: {epochs: 20, steps: 20, lr: 0.25}");
  env::set("LOCKSTEP_DEMO_EPOCHS", "30");
  env::set("LOCKSTEP_DEMO_STEPS", "30");
  const auto options = read({"--demo.epochs", "40", "-c", first, "--config=" + second});
  env::unset("LOCKSTEP_DEMO_EPOCHS");
  env::unset("LOCKSTEP_DEMO_STEPS");
  EXPECT_EQ(options.epochs, 40);
  EXPECT_EQ(options.steps, 30);
  EXPECT_EQ(options.lr, 0.25);
  EXPECT_EQ(options.seed, 10u);
  EXPECT_EQ(options.timeout, std::chrono::minutes(30));
}

TEST(CommandLine, OpensRootsWhoseOptionsAreKnownLater) {
  const auto line = parse({"--model.width", "-3", "--model.deep", "--model.name=x"});
  demo::Options options;
  EXPECT_NO_THROW(tree_of(options).apply(line.assignments, "demo"));
  std::map<std::string, std::string> given;
  for (const auto& assignment : line.assignments) given[assignment.key] = assignment.value.text;
  EXPECT_EQ(given, (std::map<std::string, std::string>{
                       {"model.width", "-3"}, {"model.deep", "true"}, {"model.name", "x"}}));
}

TEST(CommandLine, PrintsHelpAndVersionWhateverElseIsGiven) {
  EXPECT_EQ(parse({"--version"}).text_to_print, "train 1.2.3\n");
  const auto help = *parse({"-h", "-c", "/nowhere.yaml"}).text_to_print;
  EXPECT_THAT(help, HasSubstr("Usage: train [fit|test] [FLAGS]\nTrains.\n"));
  EXPECT_THAT(help,
              HasSubstr("Demo options (--demo.*):\n  --demo.fast <bool>  (default false)\n      Be fast\n"));
  EXPECT_THAT(help, HasSubstr("--demo.lr <float>  (default 0.1; 0..1)"));
  EXPECT_THAT(
      help,
      HasSubstr(
          "--demo.strategy.timeout <duration>  (default 30m, of shard 10m; > 0s; only for pair, shard)"));
  EXPECT_THAT(help, HasSubstr("Inner options (--demo.inner.*):\n  --demo.inner.rate"));
}

// ---- One description is enough ----

struct Three {
  int width = 4;
  std::string color = "red";
  bool deep = false;
};
void describe(OptionVisitor& v, Three& o) {
  v.field("width", o.width, "Width in pixels", between(1, 9));
  v.field("color", o.color, "Color of the frame");
  v.field("deep", o.deep, "Draw in relief");
}

TEST(DescribedOnce, AppearsEverywhere) {
  Three three;
  OptionTree tree;
  tree.add("three", three, "Three members");
  const auto apply = [&](const Words& words) { tree.apply(parse(words, tree).assignments); };

  apply({"--three.width", "5", "--three.deep"});  // flags
  EXPECT_TRUE(three.width == 5 && three.deep);
  apply({"-c", write_file("three.yaml", "three: {width: 6, color: blue}")});  // YAML
  EXPECT_TRUE(three.width == 6 && three.color == "blue");
  env::set("LOCKSTEP_THREE_WIDTH", "7");  // environment
  apply({});
  env::unset("LOCKSTEP_THREE_WIDTH");
  EXPECT_EQ(three.width, 7);
  EXPECT_EQ(tree.to_yaml(), "three:\n  width: 7\n  color: blue\n  deep: true\n");  // --print_config
  const auto help = help_text(tree, kTrainInfo);                                   // --help
  for (const char* text : {"--three.width", "1..9", "Width in pixels", "--three.color", "--three.deep"}) {
    EXPECT_THAT(help, HasSubstr(text));
  }
  EXPECT_THAT(config_error([&] { apply({"--three.width", "10"}); }), HasSubstr("an integer 1..9"));  // range
  EXPECT_THAT(config_error([&] { apply({"--three.widht", "1"}); }), HasSubstr("did you mean --three.width?"));
  EXPECT_EQ(tree.list().size(), 3u);  // tables
  three.width = 0;
  EXPECT_THAT(config_error([&] { tree.validate(); }), HasSubstr("three.width"));  // values set in code
}

// ---- Every flag that is accepted changes something ----

struct FlagCase {
  std::string key;
  std::string value;
};

// For each option of the demo a value that differs from its default, by type.
std::vector<FlagCase> flag_cases() {
  demo::Options options;
  const std::map<std::string, std::string> by_type{{"bool", "true"},
                                                   {"int", "17"},
                                                   {"uint", "17"},
                                                   {"float", "0.75"},
                                                   {"text", "other"},
                                                   {"path", "other/x"},
                                                   {"duration", "17s"},
                                                   {"value", "17"},
                                                   {"float or null", "0.75"},
                                                   {"bool or null", "true"},
                                                   {"text or null", "other"},
                                                   {"list of int", "17,18"},
                                                   {"list of text", "a,b"}};
  const std::map<std::string, std::string> by_key{{"demo.mode", "exact"},
                                                  {"demo.strategy", "pair"},
                                                  {"demo.strategy.mode", "exact"},
                                                  {"demo.strategy.size", "big"}};
  std::vector<FlagCase> cases;
  for (const auto& info : tree_of(options).list()) {
    const auto sample = by_type.find(info.type);
    const auto value = sample != by_type.end() ? sample->second : by_key.at(info.key);
    cases.push_back({info.key, value});
  }
  return cases;
}

// Members of an alternative need it to be picked, and so does a choice among them.
void pick_choices_for(const std::string& key, const OptionTree& tree) {
  for (const auto& info : tree.list()) {
    if (info.key != key || info.choice.empty()) continue;
    pick_choices_for(info.choice, tree);
    tree.apply(parse({"--" + info.choice, info.only_for[0]}, tree).assignments);
  }
}

class EveryFlag : public ::testing::TestWithParam<FlagCase> {};

TEST_P(EveryFlag, ChangesTheValueThatIsBound) {
  const auto& [key, value] = GetParam();
  demo::Options options;
  const auto tree = tree_of(options);
  pick_choices_for(key, tree);
  const auto before = tree.to_yaml();
  tree.apply(parse({"--" + key, value}, tree).assignments);
  EXPECT_NE(tree.to_yaml(), before);
}

INSTANTIATE_TEST_SUITE_P(Demo, EveryFlag, ::testing::ValuesIn(flag_cases()), [](const auto& each) {
  auto name = each.param.key;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

TEST(PrintConfig, GivenBackReproducesTheRun) {
  Words words;
  demo::Options first;
  const auto tree = tree_of(first);
  for (const auto& [key, value] : flag_cases()) {
    if (!key.starts_with("demo.strategy.")) words.insert(words.end(), {"--" + key, value});
  }
  words.push_back("--demo.strategy.inner.depth=33");
  tree.apply(parse(words, tree).assignments);
  const auto printed = tree.to_yaml();
  demo::Options second;
  const auto again = tree_of(second);
  again.apply(parse({"-c", write_file("printed.yaml", printed)}, again).assignments);
  EXPECT_EQ(again.to_yaml(), printed);
  EXPECT_EQ(std::get<demo::Pair>(second.strategy).inner.depth, 33);
  EXPECT_EQ(second.hidden, (std::vector{17, 18}));
}

}  // namespace
}  // namespace lockstep
