// Joining: the handshake, the ports, and who is named when it fails.
#include <lockstep/comm/init.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/testing/run_ranks.h>

#include "comm/listener.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using test::free_port;
using test::Listener;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

auto says(const std::string& text) { return Property(&CommError::what, HasSubstr(text)); }

/// Runs `body` in a thread of its own, so that all ranks can join at once.
std::future<void> in_thread(std::function<void()> body) {
  return std::async(std::launch::async, std::move(body));
}

void join_and_sum(const CommOptions& options) {
  const auto comm = init_communicator(options);
  const auto tensor = at::ones({3});
  comm.all_reduce(tensor);
  EXPECT_EQ(tensor[0].item<int>(), options.world_size);
  comm.close();
}

TEST(InitCommunicator, SaysWhatToDoWithoutABackendThatThisBuildDoesNotHave) {
  EXPECT_THAT([] { init_communicator({.backend = "nccl"}); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("backend is not available; expected auto, sockets, gloo; got nccl"),
                        HasSubstr("gloo are for those of the CPU"))));
  EXPECT_THAT([] { init_communicator({.backend = "mpi"}); },
              ThrowsMessage<ConfigError>(HasSubstr("expected auto, sockets, gloo; got mpi")));
}

TEST(InitCommunicator, TakesOurSocketsUnlessOthersAreOfPyTorch) {
  testing::run_ranks(2, [](const Communicator& comm) { EXPECT_EQ(comm.backend(), "sockets"); });
  testing::run_ranks(2, [](const Communicator& comm) { EXPECT_EQ(comm.backend(), "gloo"); },
                     {.backend = "gloo"});
  EXPECT_THAT([] { init_communicator({.backend = "sockets", .world_size = 2, .peers = Peers::kPyTorch}); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("expected auto or gloo; got sockets"),
                                               HasSubstr("torch.distributed speaks Gloo"))));
}

TEST(InitCommunicator, OneRankNeedsNoPort) {
  const auto comm = init_communicator(CommOptions{});
  EXPECT_EQ(comm.size(), 1);
  EXPECT_EQ(comm.backend(), "single");
}

TEST(InitCommunicator, RefusesASwitchThatIsNone) {
  for (const std::string name : {"LOCKSTEP_SHARED_MEMORY", "LOCKSTEP_CMA"}) {
    for (const std::string value : {"2", "off", ""}) {
      env::set(name, value);
      EXPECT_THAT(
          [] { init_communicator({.main_port = free_port(), .rank = 0, .world_size = 2, .timeout = 1s}); },
          ThrowsMessage<ConfigError>(AllOf(HasSubstr(name + "; expected 0 or 1; got \"" + value + '"'))));
    }
    env::unset(name);
  }
}

TEST(InitCommunicator, RanksMeetAtAPort) {
  const int port = free_port();
  const auto other = in_thread([=] { join_and_sum({.main_port = port, .rank = 1, .world_size = 2}); });
  join_and_sum({.main_port = port, .rank = 0, .world_size = 2});
}

TEST(InitCommunicator, TakesOverAListeningSocket) {
  Listener listener;
  const int port = listener.port();
  const auto other = in_thread([=] { join_and_sum({.main_port = port, .rank = 1, .world_size = 2}); });
  std::this_thread::sleep_for(50ms);  // the other one connects to a socket that nobody serves yet
  join_and_sum({.main_port = port, .rank = 0, .world_size = 2, .listen_fd = listener.release()});
}

TEST(InitCommunicator, NamesMissingRanksOnEveryRank) {
  const auto store = make_hash_store();
  const auto join = [&](int rank) {
    EXPECT_THAT([&] { init_communicator({.rank = rank, .world_size = 4, .timeout = 2s}, store); },
                Throws<Timeout>(AllOf(says("2 of 4 ranks joined within 2s; missing ranks 1, 3"),
                                      Property(&CommError::ranks, ElementsAre(1, 3)))));
  };
  const auto other = in_thread([&] { join(2); });
  join(0);
}

TEST(InitCommunicator, NamesAnUnreachableRankZero) {
  const int port = free_port();
  const auto address = "127.0.0.1:" + std::to_string(port);
  EXPECT_THAT([&] { init_communicator({.main_port = port, .rank = 1, .world_size = 2, .timeout = 200ms}); },
              ThrowsMessage<Timeout>(AllOf(HasSubstr(address), HasSubstr("200 ms"), HasSubstr("refused"))));
}

TEST(InitCommunicator, NamesATakenPortAtOnce) {
  const Listener taken;
  EXPECT_THAT([&] { init_communicator({.main_port = taken.port(), .rank = 0, .world_size = 2}); },
              ThrowsMessage<CommError>(AllOf(HasSubstr("port " + std::to_string(taken.port())),
                                             HasSubstr("taken"), HasSubstr("choose another port"))));
}

TEST(InitCommunicator, NamesDifferentWorldSizes) {
  const auto store = make_hash_store();
  const auto join = [&](int rank, int world_size) {
    EXPECT_THAT([&] { init_communicator({.rank = rank, .world_size = world_size, .timeout = 20s}, store); },
                ThrowsMessage<CollectiveMismatch>(AllOf(HasSubstr("2 on rank"), HasSubstr("3 on rank"))));
  };
  const auto other = in_thread([&] { join(1, 3); });
  join(0, 2);
}

TEST(InitCommunicator, NamesDifferentReductions) {
  const auto store = make_hash_store();
  const auto join = [&](int rank, Reduction reduction) {
    EXPECT_THAT(
        [&] {
          init_communicator({.rank = rank, .world_size = 2, .timeout = 20s, .reduction = reduction}, store);
        },
        Throws<CollectiveMismatch>(AllOf(says("disagree on the reduction"), says("ordered on rank 0"),
                                         says("fast on rank 1"),
                                         Property(&CommError::ranks, UnorderedElementsAre(0, 1)))));
  };
  const auto other = in_thread([&] { join(1, Reduction::kFast); });
  join(0, Reduction::kOrdered);
}

TEST(InitCommunicator, NamesDifferentChecks) {
  const auto store = make_hash_store();
  const auto join = [&](int rank, bool check) {
    EXPECT_THAT(
        [&] {
          init_communicator({.rank = rank, .world_size = 2, .timeout = 20s, .check_collectives = check},
                            store);
        },
        ThrowsMessage<CollectiveMismatch>(AllOf(HasSubstr("disagree on the checks of collectives"),
                                                HasSubstr("on on rank 0"), HasSubstr("off on rank 1"))));
  };
  const auto other = in_thread([&] { join(1, false); });
  join(0, true);
}

// It has joined, and does no more.
TEST(InitCommunicator, NamesARankThatDiesWhileTheyConnect) {
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(gone, nullptr, 0), gone);
  auto store = make_hash_store();
  const auto join = [&](int rank) {
    EXPECT_THAT([&] { init_communicator({.rank = rank, .world_size = 3, .timeout = 100s}, store); },
                ThrowsMessage<PeerLost>(AllOf(HasSubstr("rank 2 is gone"), HasSubstr(std::to_string(gone)))));
  };
  const auto start = std::chrono::steady_clock::now();
  {
    const auto zero = in_thread([&] { join(0); });
    const auto one = in_thread([&] { join(1); });
    auto entry = store.get("roll_call/0", 20s);  // another process of this host with the same settings
    const auto own = '\n' + std::to_string(getpid());
    entry.replace(entry.find(own), own.size(), '\n' + std::to_string(gone));
    store.set("roll_call/2", entry);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 50s);
}

TEST(InitCommunicator, TakesTheLongestTimeout) {
  const auto store = make_hash_store();
  const auto join = [&](int rank, std::chrono::milliseconds timeout) {
    const auto comm = init_communicator({.rank = rank, .world_size = 2, .timeout = timeout}, store);
    std::this_thread::sleep_for(rank * 100ms);
    comm.monitored_barrier(timeout);
    const auto tensor = at::ones({100'000});
    comm.all_reduce(tensor);
    EXPECT_EQ(tensor[0].item<int>(), 2);
    comm.close();
  };
  const auto other = in_thread([&] { join(1, std::chrono::milliseconds::max()); });
  join(0, 10'000'000'000s);
}

// Rank 1 makes a mistake, of which rank 0 hears; then both try again, twice.
class SecondAttempt : public ::testing::TestWithParam<CommOptions> {};
INSTANTIATE_TEST_SUITE_P(After, SecondAttempt,
                         ::testing::Values(CommOptions{.backend = "carrier pigeon", .rank = 1},
                                           CommOptions{.rank = 5}),
                         [](const auto& test) {
                           return test.param.rank == 5 ? "AWrongRank" : "AWrongBackend";
                         });

TEST_P(SecondAttempt, FindsTheOthers) {
  const int port = free_port();
  const auto options_of = [port](int rank) {
    return CommOptions{.main_port = port, .rank = rank, .world_size = 2, .timeout = 30s};
  };
  const auto other = in_thread([&] {
    auto store = make_tcp_store({.port = port, .timeout = 20s});
    ASSERT_NE(store.get("communicator/0/roll_call/0", 20s), "");
    auto wrong = options_of(GetParam().rank);
    wrong.backend = GetParam().backend;
    EXPECT_THROW(init_communicator(wrong), ConfigError);
    for (int i = 0; i < 2; ++i) join_and_sum(options_of(1));
  });
  EXPECT_THAT([&] { init_communicator(options_of(0)); }, ThrowsMessage<CommError>(HasSubstr("cannot join")));
  for (int i = 0; i < 2; ++i) join_and_sum(options_of(0));
}

TEST(InitCommunicator, NamesARankThatExpectsPyTorch) {
  const int port = free_port();
  const auto other = in_thread([&] {
    EXPECT_THROW(
        init_communicator(
            {.main_port = port, .rank = 1, .world_size = 2, .timeout = 3s, .peers = Peers::kPyTorch}),
        CommError);
  });
  EXPECT_THAT([&] { init_communicator({.main_port = port, .rank = 0, .world_size = 2, .timeout = 30s}); },
              ThrowsMessage<CollectiveMismatch>(
                  AllOf(HasSubstr("protocol"), HasSubstr("torch.distributed on rank 1"))));
}

// Both of them, and rank 0, whose rank 2 is not there yet.
TEST(InitCommunicator, NamesARankThatJoinedTwiceOnEveryRank) {
  const auto store = make_hash_store();
  const auto join = [&](int rank) {
    EXPECT_THAT([&] { init_communicator({.rank = rank, .world_size = 3, .timeout = 20s}, store); },
                Throws<CommError>(AllOf(says("rank 1 joined twice"), says(std::to_string(getpid())),
                                        Property(&CommError::ranks, ElementsAre(1)))));
  };
  const auto zero = in_thread([&] { join(0); });
  const auto first = in_thread([&] { join(1); });
  join(1);
}

TEST(InitCommunicator, NamesTwoRankZerosOnEveryRank) {
  const int port = free_port();
  const CommOptions zero{.main_port = port, .rank = 0, .world_size = 3, .timeout = 20s};
  const auto expect_refusal = [](const CommOptions& options) {
    EXPECT_THAT([&] { init_communicator(options); },
                ThrowsMessage<CommError>(HasSubstr("rank 0 joined twice")));
  };
  auto first = in_thread([&] { expect_refusal(zero); });
  const auto other =
      in_thread([&] { expect_refusal({.main_port = port, .rank = 1, .world_size = 3, .timeout = 20s}); });
  auto same_host = zero;  // in a process of its own, it would not share the first one's store
  same_host.main_address = "localhost";
  expect_refusal(same_host);
}

TEST(InitCommunicator, TellsTheOthersOfARankThatCannotJoin) {
  const auto store = make_hash_store();
  const auto zero = in_thread([&] {
    EXPECT_THAT(
        [&] { init_communicator({.rank = 0, .world_size = 2, .timeout = 20s}, store); },
        ThrowsMessage<CommError>(AllOf(HasSubstr("rank 7"), HasSubstr("cannot join: rank is out of range"),
                                       HasSubstr("expected 0 to 1"))));
  });
  auto impatient = store;
  ASSERT_NE(impatient.get("roll_call/0", 10s), "");
  EXPECT_THROW(init_communicator({.rank = 7, .world_size = 2, .timeout = 20s}, store), ConfigError);
}

TEST(InitCommunicator, RefusesOptionsOutOfRange) {
  EXPECT_THROW(init_communicator({.world_size = 0}), ConfigError);
  EXPECT_THROW(init_communicator({.rank = 2, .world_size = 2}), ConfigError);
  EXPECT_THROW(init_communicator({.backend = "carrier pigeon"}), ConfigError);
  EXPECT_THROW(init_communicator({.main_port = 0, .world_size = 2}), ConfigError);
  EXPECT_THROW(init_communicator({.main_port = 70000, .world_size = 2}), ConfigError);
  EXPECT_THROW(init_communicator({.timeout = 0ms}), ConfigError);
}

}  // namespace
}  // namespace lockstep
