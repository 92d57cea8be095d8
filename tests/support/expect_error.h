// Checks that an expression fails with an error that names what a user needs.
#pragma once

#include <gmock/gmock.h>

#include <exception>
#include <string>
#include <vector>

namespace lockstep::test {

/// Expects that `body` throws an `Error` whose text holds all of `parts`.
template <class Error, class Body>
void expect_error(Body body, const std::vector<std::string>& parts) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown; expected an error naming " << ::testing::PrintToString(parts);
  } catch (const Error& error) {
    for (const std::string& part : parts) EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
  }
}

}  // namespace lockstep::test
