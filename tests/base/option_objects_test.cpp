// Lists of objects that files, flags and the environment name with their options.
#include <lockstep/base/option_objects.h>

#include <memory>
#include <stdexcept>

#include <lockstep/base/command_line.h>
#include <lockstep/base/env.h>
#include <lockstep/base/options.h>

#include "base/demo_options.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;
using demo::config_error;

// What the classes are made as.
struct Tool {
  virtual ~Tool() = default;
  virtual double weight() const = 0;
};

struct HammerOptions {
  double weight = 1.5;
  std::optional<int> nails = 3;
  std::vector<std::string> names = {};
  std::chrono::milliseconds swing = 1s;
};
void describe(OptionVisitor& v, HammerOptions& o) {
  v.field("weight", o.weight, "How heavy", more_than(0));
  v.field("nails", o.nails, "How many nails", at_least(0));
  v.field("names", o.names, "What they are called");
  v.field("swing", o.swing, "How long a blow takes");
}
struct Hammer final : Tool {
  explicit Hammer(HammerOptions given) : options(std::move(given)) {
    if (options.weight == 13) throw std::invalid_argument("thirteen");
    if (options.names.empty() || std::ssize(options.names) == options.nails.value_or(0)) return;
    throw ConfigError("tools", {.what = "Hammer: names", .expected = "one for each nail", .got = "others"});
  }
  double weight() const override { return options.weight; }
  HammerOptions options;
};

struct SawOptions {};
void describe(OptionVisitor&, SawOptions&) {}
struct Saw final : Tool {
  double weight() const override { return 2; }
};

const std::vector<ObjectClass> kTools{
    object_class<Tool, HammerOptions>(
        "Hammer", [](const HammerOptions& options) { return std::make_shared<Hammer>(options); },
        {{"color", "red", "all of them are red"}, {"blow", "", "it is a function"}}),
    object_class<Tool, SawOptions>("Saw", [](const SawOptions&) { return std::make_shared<Saw>(); }),
    {.name = "Laser", .unavailable = "use a Saw"}};

struct Box {
  int size = 1;
  std::vector<NamedObject> tools = {};
};
void describe(OptionVisitor& v, Box& o) {
  v.field("size", o.size, "How large");
  v.objects("tools", o.tools, kTools, "make a tool of your own", "What is in it");
}

OptionTree tree_of(Box& box) {
  OptionTree tree;
  tree.add("box", box);
  return tree;
}

Box box_of(std::string_view yaml, Box box = {}) {
  tree_of(box).apply(read_yaml(yaml, "c.yaml"));
  return box;
}

std::string printed(Box box) { return tree_of(box).to_yaml(); }

std::string refusal_of_tools(std::string_view yaml) {
  return config_error([&] { box_of(yaml); });
}

Box box_of_words(const Words& words) {
  Box box;
  const auto tree = tree_of(box);
  std::vector<const char*> argv{"box"};
  for (const auto& word : words) argv.push_back(word.c_str());
  tree.apply(parse_command_line(static_cast<int>(argv.size()), argv.data(), tree, {}).assignments);
  return box;
}

std::string refusal_of_words(const Words& words) {
  return config_error([&] { box_of_words(words); });
}

Words classes_in(const Box& box) {
  Words names;
  for (const auto& tool : box.tools) names.push_back(tool.class_name);
  return names;
}

const HammerOptions& hammer_in(const Box& box, std::size_t i) {
  return std::any_cast<const HammerOptions&>(box.tools.at(i).options);
}

constexpr auto kFile = R"(box:
  tools:
    - class_path: lightning.pytorch.tools.Hammer
      init_args:
        weight: 2.5
        names: [a, b]
        nails: 2
        swing: {seconds: 2, milliseconds: 500}
    - ls::Saw
    - class_path: Hammer
      init_args:
)";

TEST(Objects, AreReadFromFiles) {
  const auto box = box_of(kFile);
  EXPECT_EQ(classes_in(box), (Words{"Hammer", "Saw", "Hammer"}));
  EXPECT_EQ(hammer_in(box, 0).weight, 2.5);
  EXPECT_EQ(hammer_in(box, 0).names, (Words{"a", "b"}));
  EXPECT_EQ(hammer_in(box, 0).swing, 2500ms);
  EXPECT_EQ(hammer_in(box, 2).weight, 1.5);
  const auto made = std::static_pointer_cast<Tool>(kTools[0].make(box.tools[0].options));
  EXPECT_EQ(made->weight(), 2.5);
}

TEST(Objects, AreASingleOneOrWordsAsWell) {
  EXPECT_EQ(classes_in(box_of("box: {tools: {class_path: Saw}}")), Words{"Saw"});
  EXPECT_EQ(
      hammer_in(box_of("box: {tools: {class_path: pytorch_lightning.x.Hammer, init_args: {nails: 7}}}"), 0)
          .nails,
      7);
  EXPECT_EQ(classes_in(box_of("box: {tools: Saw}")), Words{"Saw"});
  EXPECT_EQ(classes_in(box_of("box: {tools: [Saw, 'Hammer']}")), (Words{"Saw", "Hammer"}));
}

TEST(Objects, AreNoneForWhatSaysNothing) {
  for (const std::string nothing : {"null", "[]", "{}", "", "~"})
    EXPECT_TRUE(box_of("box: {tools: " + nothing + "}", box_of(kFile)).tools.empty()) << nothing;
  EXPECT_EQ(printed({}), "box:\n  size: 1\n  tools: []\n");
}

TEST(Objects, ArePrintedSoThatTheyCanBeReadAgain) {
  const auto box = box_of(kFile);
  const auto yaml = printed(box);
  EXPECT_EQ(yaml, R"(box:
  size: 1
  tools:
    - class_path: Hammer
      init_args:
        weight: 2.5
        nails: 2
        names: [a, b]
        swing: 2500ms
    - class_path: Saw
      init_args: {}
    - class_path: Hammer
      init_args:
        weight: 1.5
        nails: 3
        names: []
        swing: 1s
)");
  EXPECT_EQ(printed(box_of(yaml)), yaml);
}

TEST(Objects, NullsAreDefaultsOrNone) {
  const auto box = box_of("box: {tools: [{class_path: Hammer, init_args: {weight: null, nails: null}}]}");
  EXPECT_EQ(hammer_in(box, 0).weight, 1.5);
  EXPECT_EQ(hammer_in(box, 0).nails, std::nullopt);
}

TEST(Objects, ErrorsNameTheVeryPlace) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"[Saw, {class_path: Hammer, init_args: {weigth: 1}}]",
       "unknown key box.tools[1].init_args.weigth; expected an option of Hammer: weight, nails, names, "
       "swing; "
       "at c.yaml:2:49; did you mean box.tools[1].init_args.weight?"},
      {"[{class_path: Saw, init_args: {teeth: 1}}]",
       "unknown key box.tools[0].init_args.teeth; expected no options of Saw; at c.yaml:2:41"},
      {"[\"Sa\\n\\e[31m\\0w\"]", "got \"Sa??[31m?w\""},
      {"[{class_path: Hammer, init_args: {weight: 13}}]", "box.tools[0]: thirteen; at c.yaml:2:24"},
      {"[Saw, {class_path: Hammer, init_args: {nails: x}}]",
       "box.tools[1].init_args.nails; expected an integer >= 0; got \"x\"; at c.yaml:2:56"},
      {"[Saw, {class_path: Hammer, init_args: {names: [a, {b: 1}]}}]",
       "box.tools[1].init_args.names; expected text; got a map; at c.yaml:2:60"},
      {"[{class_path: Hamer}]",
       "box.tools[0] names an unknown class; expected one of Hammer, Saw; got \"Hamer\"; at c.yaml:2:24; did "
       "you "
       "mean Hammer?; make a tool of your own"},
      {"[{class_path: my.module.Saw}]",
       "got \"my.module.Saw\"; at c.yaml:2:24; did you mean Saw?; make a tool"},
      {"Chisel", "box.tools[0] names an unknown class"},
      {"[Saw, Laser]", "box.tools[1] names Laser, which is not available; at c.yaml:2:16; use a Saw"},
      {"[{class_path: Saw, dict_kwargs: {a: 1}}]",
       "box.tools[0]; expected the name of a class, or {class_path: NAME, init_args: {...}}; got an entry "
       "dict_kwargs; at c.yaml:2:29; options of the class are entries of init_args"},
      {"[{init_args: {a: 1}}]", "box.tools[0]; expected the name of a class"},
      {"[{class_path: [Saw]}]", "box.tools[0].class_path; expected the name of a class"},
      {"[{class_path: Saw, init_args: 3}]",
       "box.tools[0].init_args; expected a map of options of Saw; got \"3\"; at c.yaml:2:40"},
      {"[null]", "box.tools[0]; expected the name of a class"},
      {"[{class_path: Hammer, init_args: {blow: f}}]",
       "box.tools[0].init_args.blow; expected null; got \"f\"; at c.yaml:2:44; it is a function"},
      {"[{class_path: Hammer, init_args: {color: {r: 1}}}]", "box.tools[0].init_args.color.r; expected red"},
      {"[{class_path: Hammer, init_args: {names: [a]}}]",
       "box.tools[0]: Hammer: names; expected one for each nail; got others; at c.yaml:2:24"}};
  for (const auto& [tools, expected] : cases) {
    const auto text = refusal_of_tools("box:\n  " + ("tools: " + tools));
    EXPECT_NE(text.find(expected), text.npos) << tools << "\n" << text;
  }
}

TEST(Objects, OptionsThatSayNothingHereAreTaken) {
  EXPECT_EQ(box_of("box: {tools: [{class_path: Hammer, init_args: {color: RED, blow: null}}]}").tools.size(),
            1u);
}

TEST(Objects, ValuesOfCodeAreChecked) {
  Box box{.tools = {{"Saw", SawOptions{}}, {"Hammer", HammerOptions{.weight = -1}}}};
  const auto text = config_error([&] { tree_of(box).validate(); });
  EXPECT_NE(text.find("box.tools[1].init_args.weight; expected a finite number > 0"), text.npos) << text;
}

TEST(Objects, AreOneEntryOfHelp) {
  Box box{.tools = {{"Saw", SawOptions{}}}};
  const auto text = help_text(tree_of(box), {.program = "box"});
  EXPECT_NE(text.find("--box.tools <list of class names>  (default [Saw]; one of Hammer, Saw)"), text.npos)
      << text;
}

TEST(Objects, AreCompletedWithAndWithoutAPlus) {
  Box box;
  const CommandLineInfo info{.program = "box"};
  const auto bash = completion_script(tree_of(box), info, Shell::kBash);
  for (const auto* line :
       {"    --box.tools) words='Hammer Saw' ;;\n", "    --box.tools+) words='Hammer Saw' ;;\n"})
    EXPECT_NE(bash.find(line), bash.npos) << bash;
  const auto zsh = completion_script(tree_of(box), info, Shell::kZsh);
  EXPECT_NE(zsh.find("'*--box.tools\\+="), zsh.npos) << zsh;
  const auto fish = completion_script(tree_of(box), info, Shell::kFish);
  EXPECT_NE(fish.find("-l box.tools+ -x -a 'Hammer Saw'"), fish.npos) << fish;
}

TEST(Objects, AreReadFromFlags) {
  EXPECT_EQ(classes_in(box_of_words({"--box.tools", "Saw"})), Words{"Saw"});
  EXPECT_EQ(classes_in(box_of_words({"--box.tools=Saw,Hammer"})), (Words{"Saw", "Hammer"}));
  EXPECT_EQ(classes_in(box_of_words({"--box.tools", "Saw", "--box.size", "2", "--box.tools", "Hammer"})),
            (Words{"Saw", "Hammer"}));
  const auto box = box_of_words({"--box.tools", "[{class_path: Hammer, init_args: {nails: 4}}, Saw]"});
  EXPECT_EQ(classes_in(box), (Words{"Hammer", "Saw"}));
  EXPECT_EQ(hammer_in(box, 0).nails, 4);
  EXPECT_EQ(hammer_in(box_of_words({"--box.tools={class_path: Hammer, init_args: {nails: 4}}"}), 0).nails, 4);
  EXPECT_TRUE(box_of_words({"--box.tools", "[]"}).tools.empty());
  EXPECT_TRUE(box_of_words({"--box.tools", "null"}).tools.empty());
}

TEST(Objects, FlagsBehindANameAreItsOptions) {
  const auto box =
      box_of_words({"--box.tools+=Hammer", "--box.tools.nails=1", "--box.tools.init_args.weight", "9",
                    "--box.tools+", "Hammer", "--box.tools.swing", "{minutes: 1}", "--box.tools.nails=5"});
  EXPECT_EQ(hammer_in(box, 0).nails, 1);
  EXPECT_EQ(hammer_in(box, 0).weight, 9);
  EXPECT_EQ(hammer_in(box, 1).nails, 5);
  EXPECT_EQ(hammer_in(box, 1).swing, 1min);
  EXPECT_EQ(hammer_in(box_of_words({"--box.tools", "Hammer", "--box.tools.nails", "null"}), 0).nails,
            std::nullopt);
}

TEST(Objects, FlagsReplaceThoseOfVariablesUnlessTheyAppend) {
  env::set("LOCKSTEP_BOX_TOOLS", "[{class_path: Hammer, init_args: {nails: 8}}]");
  EXPECT_EQ(hammer_in(box_of_words({}), 0).nails, 8);
  EXPECT_EQ(classes_in(box_of_words({"--box.tools", "Saw"})), Words{"Saw"});
  EXPECT_EQ(classes_in(box_of_words({"--box.tools+", "Saw"})), (Words{"Hammer", "Saw"}));
  env::unset("LOCKSTEP_BOX_TOOLS");
}

TEST(Objects, FilesAppendByAPlus) {
  Box box;
  auto given = read_yaml("box: {tools: [Saw]}", "a.yaml");
  for (auto& more : read_yaml("box: {tools+: [Hammer]}", "b.yaml")) given.push_back(more);
  tree_of(box).apply(given);
  EXPECT_EQ(classes_in(box), (Words{"Saw", "Hammer"}));
}

TEST(Objects, WrongFlagsAreNamed) {
  EXPECT_EQ(
      refusal_of_words({"--box.tools.nails=1"}),
      "[options] flag --box.tools.nails; expected behind the flag that names its class; got no "
      "--box.tools before it; --box.tools NAME --box.tools.nails 1, or --box.tools+ NAME to add to those of "
      "a file");
  EXPECT_EQ(refusal_of_words({"--box.tools", "Hammer", "--box.tools.nail=x"}),
            "[options] unknown key box.tools[0].init_args.nail; expected an option of Hammer: weight, nails, "
            "names, swing; at flag --box.tools; did you mean box.tools[0].init_args.nails?");
  const auto text = refusal_of_words({"--box.tools", "[{class_path: Saw}"});
  EXPECT_NE(text.find("box.tools: malformed YAML"), text.npos) << text;
  EXPECT_NE(text.find("at flag --box.tools"), text.npos) << text;
  EXPECT_NE(refusal_of_words({"--box.tools"}).find("needs a value"), std::string::npos);
  for (const Words& words : {Words{"--box.tools", "Hammer", "--box.tools.nails"},
                             Words{"--box.tools", "Hammer", "--box.tools.nails", "--box.size", "2"}})
    EXPECT_NE(refusal_of_words(words).find("flag --box.tools.nails needs a value"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
