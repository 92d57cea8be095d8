// Addresses at which nobody can meet: every rank says which, and what failed, in its own words.
#include <lockstep/comm/init.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/base/error.h>

#include "comm/listener.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using test::free_port;
using test::Listener;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr auto kNowhere = "no.such.host.invalid";

/// What is said besides the exception, which must hold `parts`.
template <class Failure, class... Parts>
std::string stderr_of_refused(const CommOptions& options, Parts... parts) {
  ::testing::internal::CaptureStderr();
  EXPECT_THAT([&] { init_communicator(options); },
              ThrowsMessage<Failure>(AllOf(HasSubstr(parts)..., Not(HasSubstr("Exception raised")))));
  return ::testing::internal::GetCapturedStderr();
}

class Unreachable : public ::testing::TestWithParam<Peers> {};
INSTANTIATE_TEST_SUITE_P(Among, Unreachable, ::testing::Values(Peers::kLockstep, Peers::kPyTorch),
                         [](const auto& test) {
                           return test.param == Peers::kLockstep ? "Lockstep" : "PyTorch";
                         });

TEST_P(Unreachable, RankZeroNamesItsOwnAddressThatCannotBeResolved) {
  const int port = free_port();
  const CommOptions options{.main_address = kNowhere,
                            .main_port = port,
                            .rank = 0,
                            .world_size = 2,
                            .timeout = 500ms,
                            .peers = GetParam()};
  EXPECT_EQ(stderr_of_refused<CommError>(options, kNowhere + (":" + std::to_string(port)), "cannot resolve",
                                         "own machine", "main_address"),
            "");
}

TEST_P(Unreachable, OthersNameAnAddressThatCannotBeResolved) {
  const CommOptions options{.main_address = kNowhere,
                            .main_port = 1234,
                            .rank = 1,
                            .world_size = 2,
                            .timeout = 500ms,
                            .peers = GetParam()};
  EXPECT_EQ(stderr_of_refused<Timeout>(options, "no.such.host.invalid:1234", "500 ms", "cannot resolve",
                                       "check that rank 0 runs"),
            "");
}

// Its socket listens elsewhere.
TEST_P(Unreachable, RankZeroNamesItsOwnAddressThatRefuses) {
  Listener listener;
  const int port = listener.port();
  const CommOptions options{.main_address = "127.0.0.2",
                            .main_port = port,
                            .rank = 0,
                            .world_size = 2,
                            .timeout = 500ms,
                            .listen_fd = listener.release(),
                            .peers = GetParam()};
  EXPECT_EQ(stderr_of_refused<CommError>(options, "127.0.0.2:" + std::to_string(port), "Connection refused",
                                         "own machine"),
            "");
}

TEST(UnreachableInitMethod, IsNamed) {
  const ProcessGroupOptions options{
      .rank = 0, .world_size = 2, .init_method = "tcp://no.such.host.invalid:29511", .timeout = 500ms};
  EXPECT_THAT([&] { init_process_group(options); },
              ThrowsMessage<CommError>(AllOf(HasSubstr("no.such.host.invalid:29511"),
                                             HasSubstr("cannot resolve"), HasSubstr("init_method"))));
}

TEST(RankZeroOfPyTorch, SaysHowManyJoined) {
  const CommOptions options{
      .main_port = free_port(), .rank = 0, .world_size = 3, .timeout = 500ms, .peers = Peers::kPyTorch};
  EXPECT_EQ(stderr_of_refused<Timeout>(options, "not all ranks have joined at 127.0.0.1", "500 ms", "1/3"),
            "");
}

}  // namespace
}  // namespace lockstep
