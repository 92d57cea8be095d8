// OptionTree: values reach their members, choices, errors, checks and printing.
#include <cmath>
#include <tuple>

#include <lockstep/base/command_line.h>
#include <lockstep/base/options.h>

#include "base/demo_options.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using demo::config_error;
using demo::Mode;
using demo::Pair;
using demo::Plain;
using demo::Shard;
using demo::tree_of;

demo::Options options_of(std::string_view yaml, demo::Options options = {}) {
  tree_of(options).apply(read_yaml(yaml, "conf.yaml"));
  return options;
}

std::string refusal_of_options(std::string_view yaml) {
  return config_error([&] { options_of(yaml); });
}

Assignment flag(std::string key, std::string text) {
  const auto name = "--" + key;
  return {std::move(key), {.text = std::move(text)}, {.kind = Source::Kind::kFlag, .name = name}};
}

std::vector<Assignment> joined(std::vector<Assignment> first, std::vector<Assignment> second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Texts of which some are accepted.
struct Chosen {
  std::string optimizer = "adam";
  std::optional<std::string> schedule = {};
  std::vector<std::string> metrics = {};
  int width = 2;
};
void describe(OptionVisitor& v, Chosen& o) {
  v.field("optimizer", o.optimizer, "Which optimizer", one_of({"sgd", "adam", "AdamW"}));
  v.field("schedule", o.schedule, "How the rate changes", one_of({"cosine", "linear"}));
  v.field("metrics", o.metrics, "What is measured", one_of({"loss", "accuracy"}));
  v.field("width", o.width, "Width", one_of({"1", "2", "4"}));
}

OptionTree tree_of_choices(Chosen& options) {
  OptionTree tree;
  tree.add("model", options);
  return tree;
}

std::string refusal_of_choice(const std::string& key, const std::string& text) {
  return config_error([&] {
    Chosen options;
    tree_of_choices(options).apply(std::vector{flag("model." + key, text)});
  });
}

TEST(OneOf, TakesTheNamesInAnyCase) {
  Chosen options;
  tree_of_choices(options).apply(
      std::vector{flag("model.optimizer", "ADAMW"), flag("model.schedule", "Linear"),
                  flag("model.metrics", "loss,Accuracy"), flag("model.width", "4")});
  EXPECT_EQ(options.optimizer, "AdamW") << "as it is spelled in the list";
  EXPECT_EQ(options.schedule, "linear");
  EXPECT_EQ(options.metrics, (std::vector<std::string>{"loss", "accuracy"}));
  EXPECT_EQ(options.width, 4);
  tree_of_choices(options).validate();
  EXPECT_EQ(tree_of_choices(options).to_yaml(),
            "model:\n  optimizer: AdamW\n  schedule: linear\n  metrics: [loss, accuracy]\n  width: 4\n");
  tree_of_choices(options).apply(std::vector{flag("model.schedule", "null")});
  EXPECT_EQ(options.schedule, std::nullopt);
}

TEST(OneOf, RefusesOthersWithTheNamesAndTheNearest) {
  EXPECT_EQ(refusal_of_choice("optimizer", "adma"),
            "[options] model.optimizer; expected one of sgd, adam, AdamW; got \"adma\"; at flag "
            "--model.optimizer; did you mean adam?");
  for (const auto& [key, text, expected] : {std::tuple{"schedule", "cos", "one of cosine, linear"},
                                            {"metrics", "loss,loos", "one of loss, accuracy"},
                                            {"width", "3", "one of 1, 2, 4"},
                                            {"width", "x", "one of 1, 2, 4"},
                                            {"optimizer", "", "one of sgd"}})
    EXPECT_NE(refusal_of_choice(key, text).find(expected), std::string::npos) << refusal_of_choice(key, text);
  Chosen options{.optimizer = "Sgd"};
  EXPECT_EQ(config_error([&] { tree_of_choices(options).validate(); }),
            "[options] model.optimizer; expected one of sgd, adam, AdamW; got Sgd (set in code); did you "
            "mean sgd?");
  EXPECT_NE(config_error([] { (void)one_of({}); }).find("at least one name"), std::string::npos);
}

TEST(OneOf, IsTold) {
  Chosen options;
  const auto list = tree_of_choices(options).list();
  EXPECT_EQ(list[0].type + ": " + list[0].accepted, "name: sgd, adam, AdamW");
  EXPECT_EQ(list[1].type + ": " + list[1].accepted, "name or null: cosine, linear");
  EXPECT_EQ(list[2].type + ": " + list[2].accepted, "list of name: loss, accuracy");
  EXPECT_EQ(list[3].type + ": " + list[3].accepted, "int: 1, 2, 4");
  const auto help = help_text(tree_of_choices(options), {.program = "train"});
  EXPECT_NE(help.find("--model.optimizer <name>  (default adam; one of sgd, adam, AdamW)"), std::string::npos)
      << help;
}

TEST(Options, NullInAFileMeansTheDefault) {
  demo::Options code;
  code.epochs = 7;
  const auto options = options_of(
      "demo: {fast: null, epochs: ~, lr: null, mode: null, hidden: null, limit: null, clip: null, "
      "inner: {rate: null}, strategy: null}",
      code);
  EXPECT_EQ(options.fast, demo::Options{}.fast);
  EXPECT_EQ(options.epochs, 7);
  EXPECT_EQ(options.mode, demo::Options{}.mode);
  EXPECT_EQ(options.hidden, demo::Options{}.hidden);
  EXPECT_EQ(options.clip, std::nullopt);
  EXPECT_EQ(options.inner.rate, demo::Options{}.inner.rate);
  EXPECT_EQ(options.strategy.index(), demo::Options{}.strategy.index());
}

TEST(Options, NullInALaterFileTakesBackAnEarlierOne) {
  demo::Options options;
  tree_of(options).apply(joined(read_yaml("demo: {epochs: 3, mode: exact, strategy: shard}", "a.yaml"),
                                read_yaml("demo: {epochs: null, mode: null, strategy: null}", "b.yaml")));
  EXPECT_EQ(options.epochs, demo::Options{}.epochs);
  EXPECT_EQ(options.mode, demo::Options{}.mode);
  EXPECT_EQ(options.strategy.index(), demo::Options{}.strategy.index());
  tree_of(options).apply(joined(read_yaml("demo: {epochs: null}", "a.yaml"), {flag("demo.epochs", "5")}));
  EXPECT_EQ(options.epochs, 5);
  EXPECT_NE(config_error([&] { tree_of(options).apply(std::vector{flag("demo.epochs", "null")}); }), "");
}

TEST(Options, ReadEveryKindOfMember) {
  const auto options = options_of(R"(
demo:
  fast: true
  epochs: -1
  steps: 9000000000
  seed: 18446744073709551615
  lr: 1e-3
  name: a name
  dir: /data/runs
  timeout: 00:05:00
  mode: exact
  limit: 3
  clip: 0.5
  tag: "null"
  hidden: [64, 32]
  words: [a, "b,c"]
  inner: {rate: 2, depth: 5}
  strategy: shard
)");
  EXPECT_TRUE(options.fast);
  EXPECT_EQ(options.epochs, -1);
  EXPECT_EQ(options.steps, 9'000'000'000);
  EXPECT_EQ(options.seed, 18446744073709551615u);
  EXPECT_EQ(options.lr, 1e-3);
  EXPECT_EQ(options.name, "a name");
  EXPECT_EQ(options.dir, "/data/runs");
  EXPECT_EQ(options.timeout, 5min);
  EXPECT_EQ(options.mode, Mode::kExact);
  EXPECT_EQ(options.limit, (demo::Limit{3, false}));
  EXPECT_EQ(options.clip, 0.5);
  EXPECT_EQ(options.tag, "null");
  EXPECT_EQ(options.hidden, (std::vector{64, 32}));
  EXPECT_EQ(options.words, (std::vector<std::string>{"a", "b,c"}));
  EXPECT_EQ(options.inner.depth, 5);
  EXPECT_TRUE(std::holds_alternative<Shard>(options.strategy));
}

TEST(Options, EmptyAnOptionalByNullOrNone) {
  for (const char* word : {"null", "~", "", "none", "None"}) {
    EXPECT_EQ(options_of("demo: {clip: " + std::string(word) + "}", {.clip = 1.0}).clip, std::nullopt)
        << word;
  }
}

TEST(Options, ReadListsFromCommasToo) {
  EXPECT_EQ(options_of("demo: {hidden: '8, 4'}").hidden, (std::vector{8, 4}));
  EXPECT_EQ(options_of("demo: {hidden: 8}").hidden, (std::vector{8}));
  EXPECT_TRUE(options_of("demo: {hidden: []}").hidden.empty());
}

TEST(Options, LetLaterAssignmentsWin) {
  demo::Options options;
  tree_of(options).apply(
      joined(read_yaml("demo: {epochs: 5, steps: 7}", "a.yaml"), {flag("demo.epochs", "6")}));
  EXPECT_EQ(options.epochs, 6);
  EXPECT_EQ(options.steps, 7);
}

TEST(Options, NameTheNearestKeyAndItsPosition) {
  EXPECT_EQ(refusal_of_options("demo:\n  epoch: 3\n"),
            "[options] unknown key demo.epoch; at conf.yaml:2:3; did you mean demo.epochs?");
  EXPECT_EQ(refusal_of_options("epochs: 3\n"),
            "[options] unknown key epochs; at conf.yaml:1:1; did you mean demo.epochs?");
}

TEST(Options, NameKeyValueAndWhatIsAccepted) {
  EXPECT_EQ(refusal_of_options("demo:\n  epochs: many\n"),
            "[options] demo.epochs; expected an integer >= -1; got \"many\"; at conf.yaml:2:11");
  EXPECT_EQ(refusal_of_options("demo: {epochs: -2}"),
            "[options] demo.epochs; expected an integer >= -1; got \"-2\"; at conf.yaml:1:16");
  EXPECT_EQ(refusal_of_options("demo: {lr: .nan}"),
            "[options] demo.lr; expected a finite number 0..1; got \".nan\"; at conf.yaml:1:12");
  EXPECT_EQ(refusal_of_options("demo: {mode: exakt}"),
            "[options] demo.mode; expected one of fast, EXACT, none; got \"exakt\"; at conf.yaml:1:14; did "
            "you mean EXACT?");
  EXPECT_EQ(refusal_of_options("demo: {limit: 1.5}"),
            "[options] demo.limit; expected a share of at most 1.0; got \"1.5\"; at conf.yaml:1:15");
}

TEST(Options, PointAtTheItemOfAList) {
  EXPECT_EQ(refusal_of_options("demo:\n  hidden: [64, x]\n"),
            "[options] demo.hidden; expected an integer >= 1; got \"x\"; at conf.yaml:2:16");
  EXPECT_EQ(refusal_of_options("demo:\n  hidden:\n  - 64\n  - 0\n"),
            "[options] demo.hidden; expected an integer >= 1; got \"0\"; at conf.yaml:4:5");
}

TEST(Options, TellMapsListsAndValuesApart) {
  EXPECT_EQ(refusal_of_options("demo: {epochs: {a: 1}}"),
            "[options] demo.epochs takes a value; expected int; got a map with key a; at conf.yaml:1:17");
  EXPECT_EQ(refusal_of_options("demo: {epochs: {}}"),
            "[options] demo.epochs; expected an integer >= -1; got a map; at conf.yaml:1:16");
  EXPECT_EQ(refusal_of_options("demo: {epochs: [1]}"),
            "[options] demo.epochs; expected an integer >= -1; got a list; at conf.yaml:1:16");
  EXPECT_EQ(refusal_of_options("demo: 3"),
            "[options] demo is a group of options; expected a map; got \"3\"; at conf.yaml:1:1");
  EXPECT_EQ(refusal_of_options("demo: {inner: [1]}"),
            "[options] demo.inner is a group of options; expected a map; got a list; at conf.yaml:1:8");
}

TEST(Options, TakeAnEmptyGroupAsNothing) {
  EXPECT_EQ(options_of("demo:\n").epochs, 3);
  EXPECT_EQ(options_of("demo: {inner: {}, strategy: {}}").inner.depth, 2);
}

TEST(OptionChoice, IsPickedByNameOrByMap) {
  EXPECT_TRUE(std::holds_alternative<Pair>(options_of("demo: {strategy: pair}").strategy));
  const auto shard = std::get<Shard>(options_of("demo: {strategy: {mode: exact, name: shard}}").strategy);
  EXPECT_EQ(shard.mode, Mode::kExact);
  EXPECT_TRUE(std::get<Pair>(options_of("demo: {strategy: pair_find_unused}").strategy).find_unused);
  EXPECT_EQ(
      std::get<Pair>(options_of("demo: {strategy: {name: pair, inner: {depth: 9}}}").strategy).inner.depth,
      9);
}

TEST(OptionChoice, ReplacesTheValueOfCodeButMembersAloneAdjustIt) {
  const demo::Options code{.strategy = Pair{.timeout = 5s, .find_unused = true}};
  EXPECT_EQ(std::get<Pair>(options_of("demo: {strategy: pair}", code).strategy).timeout, 30min);
  const auto adjusted = std::get<Pair>(options_of("demo: {strategy: {timeout: 7s}}", code).strategy);
  EXPECT_EQ(adjusted.timeout, 7s);
  EXPECT_TRUE(adjusted.find_unused);
}

TEST(OptionChoice, IsPickedBeforeItsMembersAreSet) {
  demo::Options options;
  const std::vector<Assignment> given{flag("demo.strategy.mode", "EXACT"), flag("demo.strategy", "pair"),
                                      flag("demo.strategy", "shard")};
  tree_of(options).apply(given);
  EXPECT_EQ(std::get<Shard>(options.strategy).mode, Mode::kExact);
}

TEST(OptionChoice, RefusesNamesItDoesNotKnowOrHave) {
  EXPECT_EQ(
      refusal_of_options("demo: {strategy: shart}"),
      "[options] demo.strategy; expected one of plain, pair, pair_find_unused, shard, cloud; got \"shart\"; "
      "at conf.yaml:1:18; did you mean shard?");
  EXPECT_EQ(refusal_of_options("demo: {strategy: cloud}"),
            "[options] demo.strategy cloud is not available: this build has no cloud; at conf.yaml:1:18");
}

TEST(OptionChoice, RefusesMembersOfAnotherAlternative) {
  EXPECT_EQ(
      refusal_of_options("demo: {strategy: {name: pair, mode: exact}}"),
      "[options] demo.strategy.mode belongs to shard, but demo.strategy is pair; at conf.yaml:1:31; pair has "
      "demo.strategy.timeout, demo.strategy.find_unused, demo.strategy.inner.rate, "
      "demo.strategy.inner.depth");
  EXPECT_EQ(refusal_of_options("demo: {strategy: {mode: exact}}"),
            "[options] demo.strategy.mode belongs to shard, but demo.strategy is plain; at conf.yaml:1:19; "
            "plain has no options: give demo.strategy there as well");
  EXPECT_NE(
      refusal_of_options("demo: {strategy: {name: pair, mod: exact}}").find("unknown key demo.strategy.mod"),
      std::string::npos);
}

TEST(OptionChoice, LetsMembersFallWithAChoiceThatALaterSourceReplaces) {
  demo::Options options;
  const auto file = read_yaml("demo: {strategy: {name: shard, mode: exact, timeout: 3s}}", "a.yaml");
  tree_of(options).apply(joined(file, {flag("demo.strategy", "pair")}));
  EXPECT_EQ(std::get<Pair>(options.strategy).timeout, 3s);  // a member of both
  const std::vector<Assignment> foreign{flag("demo.strategy", "pair"), flag("demo.strategy.mode", "exact")};
  EXPECT_NE(config_error([&] { tree_of(options).apply(joined(file, foreign)); }).find("belongs to shard"),
            std::string::npos);
}

TEST(OptionChoice, MayStandInAnAlternativeOfAnother) {
  const auto shard =
      std::get<Shard>(options_of("demo: {strategy: {size: {factor: 5, name: big}, name: shard}}").strategy);
  EXPECT_EQ(std::get<demo::Big>(shard.size).factor, 5);
  EXPECT_NE(refusal_of_options("demo: {strategy: {name: shard, size: {factor: 5}}}")
                .find("demo.strategy.size.factor belongs to big, but demo.strategy.size is small"),
            std::string::npos);
  EXPECT_NE(refusal_of_options("demo: {strategy: {name: pair, size: {name: big, factor: 5}}}")
                .find("demo.strategy.size.name belongs to shard, but demo.strategy is pair"),
            std::string::npos);
  demo::Options options;
  const auto file = read_yaml("demo: {strategy: {name: shard, size: {name: big, factor: 5}}}", "a.yaml");
  tree_of(options).apply(joined(file, {flag("demo.strategy", "pair")}));
  EXPECT_TRUE(std::holds_alternative<Pair>(options.strategy));
}

TEST(OptionTree, AppliesOneRootAndLeavesOthersAside) {
  demo::Options options;
  OptionTree tree;
  tree.add("demo", options);
  const auto given = read_yaml("demo: {epochs: 9}\ndemonic: {x: 1}\nother: 3\n", "a.yaml");
  tree.apply(given, "demo");
  EXPECT_EQ(options.epochs, 9);
  EXPECT_THROW(tree.apply(given), ConfigError);
  EXPECT_THROW(tree.apply(given, "other"), ConfigError);
}

TEST(OptionTree, AppliesTheSameAssignmentsToAnotherObject) {
  demo::Options defaults;
  demo::Options users{.epochs = 100, .steps = 50};
  const auto given = read_yaml("demo: {epochs: 9}", "a.yaml");
  tree_of(defaults).apply(given);
  tree_of(users).apply(given);
  EXPECT_EQ(users.epochs, 9);
  EXPECT_EQ(users.steps, 50);
}

TEST(OptionTree, ChecksValuesSetInCode) {
  const auto invalid = [](demo::Options options) {
    return config_error([&] { tree_of(options).validate(); });
  };
  demo::Options fine;
  EXPECT_NO_THROW(tree_of(fine).validate());
  EXPECT_EQ(invalid({.epochs = -5}),
            "[options] demo.epochs; expected an integer >= -1; got -5 (set in code)");
  EXPECT_NE(invalid({.lr = -std::nan("")}).find("got nan"), std::string::npos);
  EXPECT_NE(invalid({.lr = std::nan("")}).find("demo.lr; expected a finite number 0..1; got nan"),
            std::string::npos);
  EXPECT_NE(invalid({.timeout = 0ms}).find("demo.timeout; expected a duration"), std::string::npos);
  EXPECT_NE(invalid({.mode = static_cast<Mode>(7)}).find("demo.mode; expected one of fast"),
            std::string::npos);
  EXPECT_NE(invalid({.clip = -1.0}).find("demo.clip"), std::string::npos);
  EXPECT_NE(invalid({.hidden = {4, 0}}).find("demo.hidden; expected an integer >= 1; got 0"),
            std::string::npos);
  EXPECT_NE(invalid({.inner = {.depth = 0}}).find("demo.inner.depth"), std::string::npos);
  EXPECT_NE(invalid({.strategy = Pair{.timeout = -1s}}).find("demo.strategy.timeout"), std::string::npos);
}

TEST(OptionTree, PrintsYamlThatSetsEveryValueAgain) {
  demo::Options first{.fast = true,
                      .epochs = 7,
                      .lr = 1,
                      .name = "null",
                      .dir = "a b/ü",
                      .timeout = 1500ms,
                      .mode = Mode::kNone,
                      .limit = {5, false},
                      .clip = 0.25,
                      .tag = "none",
                      .hidden = {},
                      .words = {"", "- x", "a: b", "#", "true", "1", "line\nbreak\t\"q\"\\",
                                "\xc2\x85\xe2\x80\xa8\xef\xbb\xbf\xe2\x82\xac"},
                      .strategy = Pair{.timeout = 1h, .inner = {.depth = 4}}};
  const auto printed = tree_of(first).to_yaml();
  demo::Options second{.strategy = Shard{}};
  tree_of(second).apply(read_yaml(printed, "printed.yaml"));
  EXPECT_EQ(tree_of(second).to_yaml(), printed);
  EXPECT_EQ(second.words, first.words);
  EXPECT_EQ(second.tag, "none");
  EXPECT_EQ(second.mode, Mode::kNone);
  EXPECT_EQ(std::get<Pair>(second.strategy).inner.depth, 4);
}

TEST(OptionTree, PrintsAChoiceByItsFirstName) {
  demo::Options options{.strategy = Pair{.find_unused = true}};
  EXPECT_NE(
      tree_of(options).to_yaml().find("strategy:\n    name: pair\n    timeout: 30m\n    find_unused: true\n"),
      std::string::npos);
  options.strategy = Plain{};
  EXPECT_NE(tree_of(options).to_yaml().find("strategy: plain\n"), std::string::npos);
  options.strategy = demo::Custom{};
  EXPECT_NE(tree_of(options).to_yaml().find("# strategy: set in code\n"), std::string::npos);
  EXPECT_NO_THROW(options_of(tree_of(options).to_yaml()));
}

TEST(OptionTree, ListsMembersOfAlternativesWithTheirChoice) {
  demo::Options options;
  const auto list = tree_of(options).list();
  const auto find = [&](std::string_view key) {
    return *std::find_if(list.begin(), list.end(), [&](const OptionInfo& info) { return info.key == key; });
  };
  EXPECT_EQ(find("demo.strategy.timeout").only_for, (std::vector<std::string>{"pair", "shard"}));
  EXPECT_EQ(find("demo.strategy.mode").choice, "demo.strategy");
  EXPECT_EQ(find("demo.strategy").accepted, "plain, pair, pair_find_unused, shard, cloud");
  EXPECT_EQ(find("demo.hidden").type, "list of int");
  EXPECT_EQ(find("demo.clip").type, "float or null");
  EXPECT_EQ(find("demo.lr").accepted, "0..1");
  EXPECT_EQ(find("demo.limit").accepted, "a count or a share");
}

}  // namespace
}  // namespace lockstep
