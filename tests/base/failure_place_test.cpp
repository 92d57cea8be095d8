#include "base/failure_place.h"

#include <new>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/base/error.h>

#include "base/memory_failure.h"

namespace lockstep::detail {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What is said of the exception that `call` throws.
template <class Call>
std::string said_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    note_failure_detail(" of step 2 (epoch 0, batch 2)");
    return failure_text(error);
  }
  return "nothing was thrown";
}

TEST(FailurePlace, NamesTheInnermostPlace) {
  const auto text = said_of([] {
    in_place("loading data", [] { in_place("get_batch", [] { throw std::out_of_range("no such row"); }); });
  });
  EXPECT_EQ(text, "no such row; in get_batch of step 2 (epoch 0, batch 2)");
}

TEST(FailurePlace, IsThatOfTheExceptionAlone) {
  EXPECT_EQ(said_of([] {
              try {
                in_place("setup", [] { throw std::runtime_error("first"); });
              } catch (const std::runtime_error&) {
              }
              throw std::runtime_error("second");
            }),
            "second");
}

TEST(FailurePlace, StandsBeforeTheStackFrames) {
  EXPECT_EQ(said_of([] { in_place("backward", [] { throw std::runtime_error("shapes\nframe #0"); }); }),
            "shapes; in backward of step 2 (epoch 0, batch 2)\nframe #0");
}

TEST(FailurePlace, IsSaidOfMemoryToo) {
  EXPECT_THAT(said_of([] { in_place("backward", [] { throw std::bad_alloc(); }); }),
              HasSubstr("; in backward of step 2"));
}

TEST(FailurePlace, LeavesErrorsThatSayWhereTheyHappened) {
  const auto text_of = [](const auto& error) {
    return said_of([&] { in_place("training_step", [&] { throw error; }); });
  };
  EXPECT_THAT(text_of(DataError("data", {.what = "no such row", .where = "x.csv:3"})),
              Not(HasSubstr("; in ")));
  EXPECT_THAT(text_of(CommError("comm", {.what = "rank 2 went away"})), Not(HasSubstr("; in ")));
  EXPECT_THAT(text_of(DataError("data", {.what = "no such row"})), HasSubstr("; in training_step of step 2"));
}

}  // namespace
}  // namespace lockstep::detail
