#include "base/number_locale.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/decimal_comma.h"

namespace lockstep::detail {
namespace {

std::string one_and_a_half() {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f", 1.5);
  return text;
}

TEST(NumbersWithPoint, HoldInALocaleWithACommaAsLongAsTheyLive) {
  const test::DecimalComma locale;
  ASSERT_TRUE(locale.is_there());
  EXPECT_EQ(one_and_a_half(), "1,5");
  {
    const NumbersWithPoint scope;
    EXPECT_EQ(one_and_a_half(), "1.5");
    EXPECT_EQ(std::strtod("1.5", nullptr), 1.5);
  }
  EXPECT_EQ(one_and_a_half(), "1,5");
}

}  // namespace
}  // namespace lockstep::detail
