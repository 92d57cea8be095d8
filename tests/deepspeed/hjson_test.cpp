// JSON with comments, and the places of what is in it.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>

#include "deepspeed/hjson.h"
#include "support/expect_error.h"

namespace lockstep::deepspeed {
namespace {

using test::expect_error;
using Kind = Hjson::Kind;

Hjson parse(std::string_view text) { return parse_hjson(text, "ds.json"); }

void expect_refused(std::string_view text, const std::vector<std::string>& parts) {
  expect_error<ConfigError>([&] { parse(text); }, parts);
}

TEST(Hjson, ReadsEveryKindOfValue) {
  auto root =
      parse(R"({"a": 1, "b": -2.5e+3, "c": true, "d": null, "e": "x", "f": [1, "y"], "g": {"h": false}})");
  EXPECT_EQ(root.find("a")->kind, Kind::kNumber);
  EXPECT_EQ(root.find("b")->text, "-2.5e+3");
  EXPECT_EQ(root.find("b")->kind, Kind::kNumber);
  EXPECT_EQ(root.find("c")->kind, Kind::kBool);
  EXPECT_EQ(root.find("d")->kind, Kind::kNull);
  EXPECT_EQ(root.find("e")->kind, Kind::kText);
  ASSERT_EQ(root.find("f")->items.size(), 2u);
  EXPECT_EQ(root.find("f")->items[1].text, "y");
  EXPECT_EQ(root.find("g")->find("h")->text, "false");
  EXPECT_EQ(root.find("z"), nullptr);
}

TEST(Hjson, KnowsWhereEachKeyAndValueStands) {
  auto root = parse("{\n  \"a\": 1,\n\t\"ä\" : // why\n    [2]}");
  EXPECT_EQ(root.members[0].place, (Place{2, 3}));
  EXPECT_EQ(root.members[0].value.place, (Place{2, 8}));
  EXPECT_EQ(root.members[1].place, (Place{3, 2}));
  EXPECT_EQ(root.members[1].value.place, (Place{4, 5}));
  EXPECT_EQ(root.members[1].value.items[0].place, (Place{4, 6}));
}

TEST(Hjson, ColumnsCountCharacters) {
  auto root = parse("{\"ääß\": 1}");
  EXPECT_EQ(root.members[0].value.place.column, 9);
}

TEST(Hjson, TakesCommentsTrailingCommasAndBareKeys) {
  auto root = parse(
      "\xef\xbb\xbf// first\n{ # one\n a: cpu /* two\n lines */ , 'b': \"//\", c: [1, 2,],\n d: 3\n e: 4 // "
      "no comma\n}\n# last");
  ASSERT_EQ(root.members.size(), 5u);
  EXPECT_EQ(root.find("a")->text, "cpu");
  EXPECT_EQ(root.find("b")->text, "//");
  EXPECT_EQ(root.find("c")->items.size(), 2u);
  EXPECT_EQ(root.find("d")->text, "3");
  EXPECT_EQ(root.find("e")->text, "4");
}

TEST(Hjson, ReplacesEscapes) {
  EXPECT_EQ(parse(R"({"a": "\"\\\/\b\f\n\r\t\u0041\u00e4\u20ac\ud83d\ude00"})").find("a")->text,
            "\"\\/\b\f\n\r\tA\u00e4\u20ac\U0001f600");
}

TEST(Hjson, TellsNumbersFromWords) {
  for (const char* word : {"1.", ".5", "1e", "+1", "0x10", "1_000", "NaN", "-", "Infinity"})
    EXPECT_EQ(parse(std::string("{a: ") + word + "}").find("a")->kind, Kind::kText) << word;
}

TEST(Hjson, NamesThePlaceOfWhatIsMalformed) {
  expect_refused("", {"ds.json:1:1", "expected {", "the end of the file"});
  expect_refused("[1]", {"ds.json:1:1", "expected {", "'['"});
  expect_refused("{\"a\" 1}", {"ds.json:1:6", "after key 'a'", "expected ':'", "'1'"});
  expect_refused("{\"a\": 1 \"b\": 2}", {"ds.json:1:9", "expected ',' or '}'", "'\"'"});
  expect_refused("{\"a\":\n }", {"ds.json:2:2", "a value is missing"});
  expect_refused("{\"a\": 1,\n  , \"b\": 2}", {"ds.json:2:3", "a key is missing"});
  expect_refused("{\"a\": [1, 2}", {"ds.json:1:12", "expected ',' or ']'"});
  expect_refused("{\"a\": \"x\n\"}", {"ds.json:1:7", "no end on its line"});
  expect_refused("{\"a\": 1", {"ds.json:1:8", "the end of the file"});
  expect_refused("{} x", {"ds.json:1:4", "expected the end of the file"});
  expect_refused("{ /* ", {"ds.json:1:3", "a comment has no end"});
  expect_refused("{\"a\": \"\\x\"}", {"ds.json:1:9", "an escape"});
  expect_refused("{\"a\": \"\\ud83d\"}", {"half a character"});
  expect_refused("{\"a\": \"\\u12g4\"}", {"four hexadecimal digits"});
  expect_refused("{\"a\": \"\x01\"}", {"control character"});
  expect_refused("{\"a\": \"\xff\"}", {"UTF-8"});
}

TEST(Hjson, RefusesAKeyGivenTwiceAtAnyLevel) {
  expect_refused("{\"a\": 1,\n\"a\": 2}", {"key 'a' is given twice", "ds.json:2:1", "first at ds.json:1:2"});
  expect_refused("{\"z\": {\"b\": 1, \"c\": 2, 'b': 3}}", {"key 'b' is given twice"});
}

TEST(Hjson, BoundsDepthAndSize) {
  EXPECT_NO_THROW(parse("{a: " + std::string(60, '[') + std::string(60, ']') + "}"));
  expect_refused("{a: " + std::string(100000, '['), {"nested deeper than 64"});
  expect_refused("{a: \"" + std::string(std::size_t{16} << 20, 'x') + "\"}", {"larger than 16 MiB"});
}

}  // namespace
}  // namespace lockstep::deepspeed
