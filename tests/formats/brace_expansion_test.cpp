#include <gmock/gmock.h>

#include <lockstep/formats/brace_expansion.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(std::string_view pattern) {
  auto names = expand_braces(pattern);
  EXPECT_TRUE(names) << names.error();
  return names.value_or({});
}

// As bash expands them.
TEST(ExpandBraces, GivesRanges) {
  EXPECT_THAT(names("d-{000..003}.tar"), ElementsAre("d-000.tar", "d-001.tar", "d-002.tar", "d-003.tar"));
  EXPECT_THAT(names("{8..11}"), ElementsAre("8", "9", "10", "11"));
  EXPECT_THAT(names("{08..10}"), ElementsAre("08", "09", "10"));
  EXPECT_THAT(names("{3..1}"), ElementsAre("3", "2", "1"));
  EXPECT_THAT(names("{1..9..4}"), ElementsAre("1", "5", "9"));
  EXPECT_THAT(names("{9..1..-4}"), ElementsAre("9", "5", "1"));
  EXPECT_THAT(names("{-01..1}"), ElementsAre("-01", "000", "001"));
  EXPECT_THAT(names("{a..c}{Y..Z}"), ElementsAre("aY", "aZ", "bY", "bZ", "cY", "cZ"));
  EXPECT_THAT(names("{f..a..-2}"), ElementsAre("f", "d", "b"));
}

TEST(ExpandBraces, GivesAlternativesAndTheirProducts) {
  EXPECT_THAT(names("{a,b}{1..2}"), ElementsAre("a1", "a2", "b1", "b2"));
  EXPECT_THAT(names("x{a,b{1..2},}y"), ElementsAre("xay", "xb1y", "xb2y", "xy"));
  EXPECT_THAT(names("plain.tar"), ElementsAre("plain.tar"));
  EXPECT_THAT(names(""), ElementsAre(""));
}

TEST(ExpandBraces, LeavesOtherBracesAlone) {
  EXPECT_THAT(names("a{b}c"), ElementsAre("a{b}c"));
  EXPECT_THAT(names("a{}c}"), ElementsAre("a{}c}"));
  EXPECT_THAT(names("{{1..2}}"), ElementsAre("{1}", "{2}"));
  EXPECT_THAT(names("{1..x}"), ElementsAre("{1..x}"));
  EXPECT_THAT(names("{a..bc}"), ElementsAre("{a..bc}"));
}

TEST(ExpandBraces, SaysWhatIsWrong) {
  EXPECT_THAT(expand_braces("a{b,c").error(), HasSubstr("not closed"));
  EXPECT_THAT(expand_braces("{0..1000000}").error(), HasSubstr("more than 1000000 names"));
  EXPECT_THAT(expand_braces("{0..9}{0..9}", 99).error(), HasSubstr("more than 99 names"));
  EXPECT_EQ(expand_braces("{0..9}{0..9}", 100)->size(), 100u);
  EXPECT_THAT(expand_braces(std::string(40, '{') + std::string(40, '}')).error(), HasSubstr("16 deep"));
}

}  // namespace
}  // namespace lockstep
