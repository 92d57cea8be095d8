// YAML files and environment variables as assignments.
#include <lockstep/base/options.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <random>

#include "base/demo_options.h"

namespace lockstep {
namespace {

using demo::config_error;
using demo::tree_of;

std::string refusal_of_yaml(std::string_view yaml) {
  return config_error([&] { read_yaml(yaml, "c.yaml"); });
}

TEST(Yaml, FlattensMapsToKeys) {
  const auto given = read_yaml("a:\n  b: 1\n  c: [x, y]\nd: ~\n", "c.yaml");
  ASSERT_EQ(given.size(), 3u);
  EXPECT_EQ(given[0].key, "a.b");
  EXPECT_EQ(shown(given[0].source), "c.yaml:2:3");
  EXPECT_EQ(given[0].value.column, 6);
  EXPECT_EQ(given[1].value.items[1].text, "y");
  EXPECT_EQ(given[2].value.kind, OptionText::Kind::kNull);
}

TEST(Yaml, MayBeEmpty) {
  for (const char* text : {"", "\n", "# nothing\n", "---\n", "{}", "~"})
    EXPECT_TRUE(read_yaml(text, "c").empty()) << text;
}

TEST(Yaml, TakesAnchors) {
  const auto given = read_yaml("a: &x {b: 1}\nc: *x\nd: &y 2\ne: *y\n", "c.yaml");
  ASSERT_EQ(given.size(), 4u);
  EXPECT_EQ(given[1].key, "c.b");
  EXPECT_EQ(given[3].value.text, "2");
}

TEST(Yaml, RefusesWhatItCannotMean) {
  EXPECT_EQ(refusal_of_yaml("a: 1\nb: 2\na: 3\n"),
            "[options] key a is given twice; at c.yaml:3:1; first at c.yaml:1:1");
  EXPECT_EQ(refusal_of_yaml("a: {b: 1}\na.b: 2\n"),
            "[options] key a.b is given twice; at c.yaml:2:1; first at c.yaml:1:5");
  EXPECT_EQ(refusal_of_yaml("a: &x {b: 1}\nc:\n  <<: *x\n"),
            "[options] merge keys (<<) are not supported; at c.yaml:3:3; write the keys out");
  EXPECT_EQ(refusal_of_yaml("[1, 2]"), "[options] a configuration file is a map of options; at c.yaml:1:1");
  EXPECT_EQ(refusal_of_yaml("a: [[1]]"), "[options] a: an item of a list is no list; at c.yaml:1:5");
  EXPECT_EQ(refusal_of_yaml("a: [{b: 1, b: 2}]"),
            "[options] key a.b is given twice; at c.yaml:1:12; first at c.yaml:1:6");
  EXPECT_EQ(refusal_of_yaml("[a, b]: 1"), "[options] a key is a word; at c.yaml:1:1");
  EXPECT_EQ(refusal_of_yaml("a: 1\n---\nb: 2\n"),
            "[options] content after the end of the YAML document; at c.yaml:2:1");
}

TEST(Yaml, RefusesClassesWhereNoOptionTakesThem) {
  const auto refusal = [](const std::string& yaml) {
    return config_error([&] {
      demo::Options options;
      tree_of(options).apply(read_yaml(yaml, "c.yaml"));
    });
  };
  const auto of_class = [&](const std::string& key) {
    return refusal("trainer:\n  " + key + ": {class_path: a.B, init_args: {c: 1}}\n");
  };
  EXPECT_EQ(refusal("trainer: {plugins: [1, {class_path: MPIEnvironment}]}"),
            "[options] trainer.plugins lists classes by class_path, which a file cannot make here; at "
            "c.yaml:1:24; "
            "give the objects in the program: its options have a member plugins");
  EXPECT_NE(refusal("demo: {strategy: {class_path: a.B}}").find("demo.strategy names a class"),
            std::string::npos);
  EXPECT_NE(refusal("demo: {epochs: {class_path: a.B}}").find("demo.epochs names a class"),
            std::string::npos);
  EXPECT_NE(refusal("demo: {hidden: [{a: 1}]}").find("expected an integer >= 1; got a map; at c.yaml:1:17"),
            std::string::npos);
  EXPECT_EQ(
      of_class("plugins"),
      "[options] trainer.plugins names a class by class_path, which a file cannot make here; at c.yaml:2:12; "
      "give the objects in the program: its options have a member plugins");
  EXPECT_NE(of_class("strategy").find("strategy: {name: ddp}"), std::string::npos);
  for (const auto* key : {"model", "data", "optimizer", "lr_scheduler"})
    EXPECT_NE(refusal(key + std::string(": {class_path: a.B}")).find("the program makes its"),
              std::string::npos);
  EXPECT_EQ(read_yaml("java: {class_path: a.jar, heap: 1}", "c.yaml").size(), 2u);
}

TEST(Yaml, KeepsMapsInListsWhole) {
  const auto given = read_yaml("a:\n  - {b: 1, c: [x, y], d: {e: ~}}\n  - f\n", "c.yaml");
  ASSERT_EQ(given.size(), 1u);
  const auto& map = given[0].value.items[0];
  EXPECT_EQ(map.kind, OptionText::Kind::kMap);
  EXPECT_EQ(map.names[1].text, "c");
  EXPECT_EQ(map.names[1].column, 12);
  EXPECT_EQ(map.items[1].items[1].text, "y");
  EXPECT_EQ(one_line(given[0].value), "[{b: 1, c: [x, y], d: {e: null}}, f]");
  const std::vector<std::pair<std::string, std::string>> values{
      {"a[0].b", "1"}, {"a[0].c", "[x, y]"}, {"a[0].d.e", "null"}, {"a[1]", "f"}};
  EXPECT_EQ(single_values(given[0]), values);
}

TEST(Yaml, GivesTheParsersPosition) {
  const auto text = refusal_of_yaml("a: 1\nb: [1, 2\nc: 3\n");
  EXPECT_TRUE(text.starts_with("[options] malformed YAML: ")) << text;
  EXPECT_NE(text.find("; at c.yaml:3:2"), std::string::npos) << text;
  EXPECT_NE(refusal_of_yaml("a: *nobody").find("c.yaml:1:4"), std::string::npos);
  EXPECT_EQ(refusal_of_yaml("a:\n\tb: 3\n"),
            "[options] malformed YAML: a tab before the first word of a line, where only spaces may be; at "
            "c.yaml:2:1");
  EXPECT_NE(refusal_of_yaml("a: \"x").find("c.yaml:1:"), std::string::npos);
}

TEST(Yaml, PrintsNoControlCharacters) {
  EXPECT_EQ(
      refusal_of_yaml("demo:\r  epochs: 3\r"),
      "[options] key demo:?  epochs holds a control character; at c.yaml:1:1; end lines by LF or CRLF, not "
      "by CR alone");
  for (const auto& text :
       {std::string("a\x1b[31m: 1"), std::string("a: \"\\\0\"", 7), std::string("a: [\0", 5)}) {
    const auto refusal = refusal_of_yaml(text);
    EXPECT_FALSE(refusal.empty());
    EXPECT_TRUE(std::ranges::none_of(refusal, [](unsigned char letter) { return std::iscntrl(letter) != 0; }))
        << refusal;
  }
}

TEST(Yaml, SurvivesDepthAndMultiplyingAnchors) {
  const std::size_t many = 100'000;
  for (const char bracket : {'[', '{', ']', '}'})
    EXPECT_NE(refusal_of_yaml("a: " + std::string(many, bracket)), "") << bracket;
  std::string maps, sequences;
  for (int depth = 0; depth < 1000; ++depth)
    maps += std::string(static_cast<std::size_t>(depth), ' ') + "a:\n";
  for (std::size_t depth = 0; depth < many; ++depth) sequences += "- ";
  EXPECT_NE(refusal_of_yaml(maps), "");
  EXPECT_NE(refusal_of_yaml("a:\n  " + sequences), "");
  EXPECT_NE(refusal_of_yaml("a: &x {b: *x}").find("nested too deeply"), std::string::npos);
  std::string laughs = "a0: &a0 {x: 1}\n";
  for (int i = 1; i < 40; ++i) {
    const auto before = "*a" + std::to_string(i - 1);
    laughs +=
        "a" + std::to_string(i) + ": &a" + std::to_string(i) + " {l: " + before + ", r: " + before + "}\n";
  }
  EXPECT_NE(refusal_of_yaml(laughs).find("more than 100000 values"), std::string::npos);
}

TEST(Yaml, RefusesFilesItCannotRead) {
  const auto missing = config_error([] { read_yaml_file("/nowhere/conf.yaml"); });
  EXPECT_EQ(missing, "[options] cannot read configuration file /nowhere/conf.yaml: no such file");
  EXPECT_NE(config_error([] { read_yaml_file("/"); }).find("it is a folder"), std::string::npos);
  EXPECT_NE(config_error([] { read_yaml_file("/dev/zero"); }).find("larger than 16 MiB"), std::string::npos);
}

// A stream of bytes that leans towards YAML's own signs, the same in every run.
std::string random_yaml(std::mt19937& random) {
  static constexpr std::string_view kSigns = "\n\n  :--[]{},&*!|>'\"%@`#?~<ab1.\t\\";
  std::string text;
  for (auto length = random() % 60; length > 0; --length) {
    text += random() % 8 == 0 ? static_cast<char>(random() % 256) : kSigns[random() % kSigns.size()];
  }
  return random() % 2 == 0 ? "demo:\n  " + text : text;
}

TEST(Yaml, AnyBytesGiveOptionsOrAConfigError) {
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto text = random_yaml(random);
    demo::Options options;
    try {
      tree_of(options).apply(read_yaml(text, "c.yaml"));
    } catch (const ConfigError&) {
      ++refused;
    } catch (const std::exception& error) {
      FAIL() << error.what() << " for:\n" << text;
    }
  }
  EXPECT_GT(refused, 1'000);
}

class Environment : public ::testing::Test {
 protected:
  std::vector<Assignment> read(const std::map<std::string, std::string>& variables) {
    const std::vector<std::string> strict{"demo"};
    return read_environment(variables, tree_, strict);
  }

  demo::Options options_;
  OptionTree tree_ = tree_of(options_);
};

TEST_F(Environment, SetsAnyKey) {
  tree_.apply(read({{"LOCKSTEP_DEMO_EPOCHS", "8"},
                    {"LOCKSTEP_DEMO_STRATEGY", "pair"},
                    {"LOCKSTEP_DEMO_STRATEGY_FIND_UNUSED", "yes"},
                    {"LOCKSTEP_DEMO_HIDDEN", "1,2,3"}}));
  EXPECT_EQ(options_.epochs, 8);
  EXPECT_EQ(options_.hidden, (std::vector{1, 2, 3}));
  EXPECT_TRUE(std::get<demo::Pair>(options_.strategy).find_unused);
}

TEST_F(Environment, RefusesUnknownVariablesOfStrictRootsOnly) {
  EXPECT_EQ(config_error([&] {
              read({{"LOCKSTEP_DEMO_EPOCH", "8"}});
            }),
            "[options] unknown environment variable LOCKSTEP_DEMO_EPOCH; did you mean LOCKSTEP_DEMO_EPOCHS?");
  EXPECT_EQ(
      config_error([&] {
        read({{"LOCKSTEP_DEMO", "{epochs: 8}"}});
      }),
      "[options] unknown environment variable LOCKSTEP_DEMO; options have variables of their own, such as "
      "LOCKSTEP_DEMO_FAST");
  EXPECT_TRUE(read({{"LOCKSTEP_LOG_LEVEL", "debug"}, {"LOCKSTEP_DEMONIC", "1"}}).empty());
}

TEST_F(Environment, NamesTheVariableOfAWrongValue) {
  const auto text = config_error([&] { tree_.apply(read({{"LOCKSTEP_DEMO_LR", "x"}})); });
  EXPECT_EQ(text,
            "[options] demo.lr; expected a finite number 0..1; got \"x\"; at environment variable "
            "LOCKSTEP_DEMO_LR");
}

TEST_F(Environment, RefusesAVariableThatMeansTwoKeys) {
  demo::Inner inner;
  tree_.add("demo_inner", inner);
  const auto text = config_error([&] { read({{"LOCKSTEP_DEMO_INNER_RATE", "1"}}); });
  EXPECT_EQ(text,
            "[options] environment variable LOCKSTEP_DEMO_INNER_RATE means demo.inner.rate and "
            "demo_inner.rate; use a flag instead");
}

}  // namespace
}  // namespace lockstep
