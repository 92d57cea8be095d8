// main() of torch_tests: forks the zygote of fork_ranks() before anything makes a tensor or a thread.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <lockstep/testing/fork_ranks.h>

#include "device/vector_math.h"

namespace {

void catch_assertions(const std::function<void()>& part, std::vector<std::string>& failed) {
  using Reporter = ::testing::ScopedFakeTestPartResultReporter;
  ::testing::TestPartResultArray results;
  {
    const Reporter reporter(Reporter::INTERCEPT_ALL_THREADS, &results);
    part();
  }
  for (int i = 0; i < results.size(); ++i) {
    const auto& result = results.GetTestPartResult(i);
    if (!result.failed()) continue;
    const std::string file = result.file_name() != nullptr ? result.file_name() : "unknown file";
    failed.push_back(file + ":" + std::to_string(result.line_number()) + ": " + result.message());
  }
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::testing::start_zygote(catch_assertions);
  lockstep::detail::choose_vector_math();
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
