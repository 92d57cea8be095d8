// Our own sockets: what they move, and how they fail.
#include "comm/transport/sockets/socket_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "comm/socket_ranks.h"
#include "support/forked.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using detail::SocketTransport;
using std::chrono::steady_clock;
using test::run_each;
using test::socket_ranks;
using test::tcp_pair;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Tensors = std::vector<at::Tensor>;

constexpr auto kPromptly = 10s;  // on a machine that does other things

at::Tensor of_rank(int rank, std::int64_t numel) { return at::arange(numel, at::kLong) * 7 + 1000 * rank; }

/// A rank 0 whose only peer is the test, at the other end of the connection.
struct Watched {
  explicit Watched(const detail::SocketLinks::Options& given = {}) {
    auto options = given;
    options.names = {"rank 0", "rank 1"};
    std::vector<UniqueFd> sockets(2);
    std::tie(sockets[1], peer) = tcp_pair();
    transport.emplace(0, std::move(sockets), options);
  }

  UniqueFd peer;
  std::optional<SocketTransport> transport;
};

/// What `call` throws, if it does so soon.
std::string failure_of(const std::function<void()>& call) {
  const auto begin = steady_clock::now();
  try {
    call();
  } catch (const std::exception& error) {
    return steady_clock::now() - begin < kPromptly ? error.what() : "late: " + std::string(error.what());
  }
  return "nothing";
}

class SocketExchange : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SocketExchange, ::testing::Values(2, 3, 5));

TEST_P(SocketExchange, MovesWhatEachHasForEach) {
  const auto ranks = socket_ranks(GetParam());
  run_each(ranks, [](SocketTransport& rank) {
    for (const std::int64_t numel : {0, 1, 1000, 300'000}) {
      Tensors to, from;
      for (int other = 0; other < rank.size(); ++other) {
        to.push_back(of_rank(10 * rank.rank() + other, numel * (other % 2 + 1)));
        from.push_back(at::zeros({numel * (rank.rank() % 2 + 1)}, at::kLong));
      }
      rank.exchange(to, from);
      for (int other = 0; other < rank.size(); ++other)
        EXPECT_TRUE(from[static_cast<std::size_t>(other)].equal(
            of_rank(10 * other + rank.rank(), numel * (rank.rank() % 2 + 1))));
    }
  });
  EXPECT_EQ(ranks[0]->bytes_sent() % sizeof(std::int64_t), 0);
}

TEST_P(SocketExchange, BroadcastsFromEveryRoot) {
  run_each(socket_ranks(GetParam()), [](SocketTransport& rank) {
    for (const std::int64_t numel : {1, 3, 1000, 300'001}) {
      for (int root = 0; root < rank.size(); ++root) {
        const auto tensor = of_rank(rank.rank(), numel);
        rank.broadcast(tensor, root);
        EXPECT_TRUE(tensor.equal(of_rank(root, numel)));
        rank.barrier();
      }
    }
  });
}

TEST(SocketBroadcast, LeavesTheRootOnceHoweverManyRanksThereAre) {
  const auto ranks = socket_ranks(5);
  run_each(ranks, [](SocketTransport& rank) { rank.broadcast(of_rank(rank.rank(), 400'000), 1); });
  EXPECT_EQ(ranks[1]->bytes_sent(), 400'000 * sizeof(std::int64_t));
}

// Where ranks have agreed on what they do, nobody sends before that; here they have not.
TEST(SocketMessages, OfOneTagDoNotHoldUpThoseOfAnother) {
  run_each(socket_ranks(2, /*has_agreement=*/false), [](SocketTransport& rank) {
    const auto first = of_rank(1, 500'000), second = of_rank(2, 500'000);
    if (rank.rank() == 0) {
      std::jthread early([&] { rank.send(first, 1, 1); });
      std::this_thread::sleep_for(50ms);
      return rank.send(second, 1, 2);
    }
    const auto place = at::zeros({500'000}, at::kLong);
    rank.recv(place, 0, 2);
    EXPECT_TRUE(place.equal(second));
    rank.recv(place, 0, 1);
    EXPECT_TRUE(place.equal(first));
  });
}

TEST(SocketMessages, PassCollectivesThatOneRankHasBegun) {
  run_each(socket_ranks(2, /*has_agreement=*/false), [](SocketTransport& rank) {
    const auto mine = of_rank(rank.rank(), 500'000), all = at::zeros({1'000'000}, at::kLong);
    if (rank.rank() == 0) {
      std::jthread early([&] { rank.all_gather(all, mine); });
      std::this_thread::sleep_for(50ms);
      return rank.send(mine, 1, 3);
    }
    const auto place = at::zeros({500'000}, at::kLong);
    rank.recv(place, 0, 3);
    EXPECT_TRUE(place.equal(of_rank(0, 500'000)));
    rank.all_gather(all, mine);
    EXPECT_TRUE(all.equal(at::cat({of_rank(0, 500'000), mine})));
  });
}

// Two threads of each rank wait at once, and one of them watches for both.
TEST(SocketMessages, MayBeUnderWayBesideCollectives) {
  for (const bool has_agreement : {true, false}) {
    run_each(socket_ranks(3, has_agreement), [](SocketTransport& rank) {
      const int next = (rank.rank() + 1) % 3, before = (rank.rank() + 2) % 3;
      std::jthread sender([&] {
        for (int i = 0; i < 100; ++i) rank.send(of_rank(i, 1 + 997 * i), next, 1);
      });
      std::jthread receiver([&] {
        for (int i = 0; i < 100; ++i) {
          const auto place = at::zeros({1 + 997 * i}, at::kLong);
          rank.recv(place, before, 1);
          EXPECT_TRUE(place.equal(of_rank(i, 1 + 997 * i)));
        }
      });
      for (int i = 0; i < 100; ++i) {
        const auto all = at::zeros({3 * (1 + 500 * i)}, at::kLong);
        rank.all_gather(all, of_rank(rank.rank(), 1 + 500 * i));
        EXPECT_TRUE(all.narrow(0, 2 * (1 + 500 * i), 1 + 500 * i).equal(of_rank(2, 1 + 500 * i)));
      }
    });
  }
}

TEST(SocketMessages, OfAnotherSizeThanExpectedAreNamed) {
  for (const bool has_agreement : {true, false}) {
    const auto ranks = socket_ranks(2, has_agreement);
    std::string failures[2];
    run_each(ranks, [&](SocketTransport& rank) {
      failures[rank.rank()] = failure_of([&] {
        rank.rank() == 0 ? rank.send(at::ones({3}), 1, 1) : rank.recv(at::ones({4}), 0, 1);
        if (rank.rank() == 0) rank.recv(at::ones({1}), 1, 2);
      });
    });
    EXPECT_THAT(failures[1] + failures[0], HasSubstr("12 bytes"));
    EXPECT_THAT(failures[1] + failures[0], HasSubstr("16 bytes"));
    EXPECT_THAT(failures[0], ::testing::Not(HasSubstr("late")));
  }
}

TEST(SocketFailures, APeerThatIsGoneIsNamed) {
  const auto place = at::ones({100});
  Watched closed;
  std::jthread closer([&] {
    std::this_thread::sleep_for(20ms);
    closed.peer.reset();
  });
  EXPECT_EQ(failure_of([&] { closed.transport->recv(place, 1, 0); }), "Connection closed by peer: rank 1");
  EXPECT_THAT(failure_of([&] { closed.transport->send(place, 1, 0); }), HasSubstr("aborted"));

  Watched reset;
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(::setsockopt(reset.peer.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  reset.peer.reset();
  EXPECT_EQ(failure_of([&] { reset.transport->recv(place, 1, 0); }),
            "Socket closed (Connection reset by peer): rank 1");
}

TEST(SocketFailures, AHalfClosedConnectionIsALostPeer) {
  Watched watched;
  ASSERT_EQ(::shutdown(watched.peer.get(), SHUT_WR), 0);
  EXPECT_EQ(failure_of([&] { watched.transport->recv(at::ones({100}), 1, 0); }),
            "Connection closed by peer: rank 1");
}

TEST(SocketFailures, WhatHasArrivedBeforeTheEndIsReceived) {
  const auto ranks = socket_ranks(2);
  std::jthread sender([&] { ranks[1]->send(of_rank(1, 1000), 0, 5); });
  sender.join();
  const_cast<test::SocketRanks&>(ranks)[1].reset();
  const auto place = at::zeros({1000}, at::kLong);
  ranks[0]->recv(place, 1, 5);
  EXPECT_TRUE(place.equal(of_rank(1, 1000)));
}

TEST(SocketFailures, WhatIsNoFrameIsNamed) {
  Watched watched;
  ASSERT_EQ(::send(watched.peer.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
  EXPECT_EQ(failure_of([&] { watched.transport->recv(at::ones({100}), 1, 0); }),
            "rank 1 sent what is no frame of this program");
}

// As a rank that is stopped: its system takes what fits into its buffers.
TEST(SocketFailures, APeerThatDoesNotGetOnIsATimeout) {
  Watched watched({.timeout = 300ms});
  const auto begin = steady_clock::now();
  EXPECT_EQ(failure_of([&] { watched.transport->send(at::ones({20'000'000}), 1, 0); }),
            "Timed out waiting for rank 1");
  EXPECT_GE(steady_clock::now() - begin, 300ms);
}

TEST(SocketFailures, ATransferThatIsGivenUpLeavesItsMemoryAlone) {
  const auto ranks = socket_ranks(2, true, {.timeout = 200ms});
  const auto sent = of_rank(1, 5'000'000);
  std::jthread sender([&] { failure_of([&] { ranks[1]->send(sent, 0, 0); }); });
  auto place = at::zeros({5'000'000}, at::kLong);
  std::jthread aborter([&] {
    std::this_thread::sleep_for(1ms);
    ranks[0]->abort();
  });
  failure_of([&] { ranks[0]->recv(place, 1, 0); });
  const auto before = place.clone();
  std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(place.equal(before));
}

// Another thread may go on moving the connection's bytes: none of them goes where nobody waits any more.
TEST(SocketFailures, ADroppedReceiveLeavesItsMemoryAlone) {
  auto pair = tcp_pair();
  detail::SocketLink to(std::move(pair.first), "rank 0"), from(std::move(pair.second), "rank 1");
  detail::SocketCall sent, received;
  const std::vector<std::byte> bytes(5'000'000, std::byte{1});
  std::vector<std::byte> place(bytes.size());
  from.post(7, {.place = place.data(), .bytes = place.size(), .call = &received});
  to.post({.stream = 7, .data = bytes.data(), .bytes = bytes.size(), .call = &sent});
  to.write();
  while (received.moved == 0) from.read();
  from.drop(received);
  const auto before = place;
  ASSERT_NE(before, bytes);
  for (int i = 0; i < 20; ++i) {
    to.write();
    from.read();
  }
  EXPECT_EQ(place, before);
}

TEST(SocketFailures, AbortEndsAllWaitsAndLaterCalls) {
  Watched watched;
  auto& transport = *watched.transport;
  const auto waits = [&](int tag) {
    return std::async(std::launch::async, [&transport, tag] {
      return failure_of([&] { transport.recv(at::ones({3}), 1, tag); });
    });
  };
  auto one = waits(1), two = waits(2);
  std::this_thread::sleep_for(30ms);
  transport.abort();
  EXPECT_THAT(one.get(), HasSubstr("aborted"));
  EXPECT_THAT(two.get(), HasSubstr("aborted"));
  EXPECT_THAT(failure_of([&] { transport.barrier(); }), HasSubstr("aborted"));
  EXPECT_THAT(failure_of([&] { transport.send(at::ones({3}), 1, 1); }), HasSubstr("aborted"));
}

// The other end sees the end of the connection when the parent closes it, though the child lives on.
TEST(SocketForks, AChildKeepsNothingOpen) {
  Watched watched;
  const auto child = test::start_forked([] { std::this_thread::sleep_for(20s); });
  watched.transport.reset();
  pollfd end{.fd = watched.peer.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&end, 1, 5000), 1);
  char byte = 0;
  EXPECT_EQ(::recv(watched.peer.get(), &byte, 1, 0), 0);
  ::kill(child, SIGKILL);
  test::wait_for(child);
}

}  // namespace
}  // namespace lockstep
