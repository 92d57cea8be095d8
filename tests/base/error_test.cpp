#include <gtest/gtest.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include <exception>
#include <new>
#include <stdexcept>

#include "base/memory_failure.h"

namespace lockstep {
namespace {

TEST(Error, NamesEveryPartInOrder) {
  const ConfigError error("options", {.what = "key lr",
                                      .expected = "a number",
                                      .got = "\"x\"",
                                      .where = "a.yaml:3:5",
                                      .hint = "see --help"});
  EXPECT_STREQ(error.what(), "[options] key lr; expected a number; got \"x\"; at a.yaml:3:5; see --help");
}

TEST(Error, OfTheSystemsAllocatorNamesMemory) {
  const auto text = detail::failure_text(std::bad_alloc());
  EXPECT_NE(text.find("memory"), std::string::npos) << text;
  EXPECT_EQ(detail::failure_text(std::runtime_error("other")), "other");
  EXPECT_EQ(detail::failure_text(std::runtime_error("\n  in the second line")), "in the second line");
  EXPECT_EQ(detail::failure_text(std::runtime_error("")), "an exception without a text (std::runtime_error)");
}

TEST(Error, TellsTheCausesThatAreNestedInIt) {
  try {
    try {
      try {
        throw 1;
      } catch (...) {
        std::throw_with_nested(std::runtime_error("inner\nframe"));
      }
    } catch (...) {
      std::throw_with_nested(std::logic_error("outer\nframe"));
    }
  } catch (const std::exception& error) {
    EXPECT_EQ(detail::failure_text(error),
              "outer; caused by: inner; caused by an exception that is no std::exception\nframe");
  }
}

TEST(Env, NamesTheVariableThatIsNoInteger) {
  env::set("LOCKSTEP_TEST_INT", "12x");
  try {
    env::get_int("LOCKSTEP_TEST_INT", 0);
    FAIL() << "accepted 12x";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("LOCKSTEP_TEST_INT"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("12x"), std::string::npos);
  }
  env::unset("LOCKSTEP_TEST_INT");
  EXPECT_EQ(env::get_int("LOCKSTEP_TEST_INT", 7), 7);
}

}  // namespace
}  // namespace lockstep
