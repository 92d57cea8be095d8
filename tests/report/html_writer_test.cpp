#include "report/page.h"

#include <gmock/gmock.h>

namespace lockstep::detail {
namespace {

TEST(HtmlWriter, EscapesTextsAndAttributes) {
  HtmlWriter page;
  page.element("p", {{"title", "\"'><script>"}}, "a < b & c > d </p>");
  EXPECT_EQ(page.html(),
            "<p title=\"&quot;&#39;&gt;&lt;script&gt;\">a &lt; b &amp; c &gt; d &lt;/p&gt;</p>\n");
}

TEST(HtmlWriter, ReplacesWhatIsNoText) {
  EXPECT_EQ(escaped("h\u00e9 \u2013"), "h\u00e9 \u2013");
  EXPECT_EQ(escaped("a\x1b[31m\tb\n"), "a\uFFFD[31m\tb\n");
  EXPECT_EQ(escaped(std::string_view("\0x", 2)), "\uFFFDx");
  EXPECT_EQ(escaped("caf\xE9"), "caf\uFFFD");
}

TEST(HtmlWriter, ClosesElementsInTheirOrder) {
  HtmlWriter page;
  {
    const auto outer = page.within("g", {{"class", "a"}});
    const auto inner = page.within("text");
    page.text("1");
  }
  EXPECT_EQ(page.html(), "<g class=\"a\"><text>1</text></g>\n");
}

}  // namespace
}  // namespace lockstep::detail
