// Sockets that others open while a group is made: they are none of its business.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/base/unique_fd.h>
#include <lockstep/testing/run_ranks.h>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

struct Pair {
  UniqueFd one;
  UniqueFd other;
};

Pair make_pair() {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// Opens sockets as long as it lives.
class Opener {
 public:
  std::vector<Pair> stop() {
    thread_.request_stop();
    thread_.join();
    return std::move(pairs_);
  }

 private:
  std::vector<Pair> pairs_;
  std::jthread thread_{[this](const std::stop_token& stop) {
    while (!stop.stop_requested() && pairs_.size() < 200) {
      pairs_.push_back(make_pair());
      std::this_thread::sleep_for(500us);
    }
  }};
};

// With a message under way, so that its sockets are shut down.
void end_in_disorder(const Communicator& parent) {
  const auto group = parent.new_group({0, 1});
  const auto tensor = at::ones({3});
  const auto work = group->recv_async(tensor, 1 - group->rank());
  std::this_thread::sleep_for(50ms);
}

class ForeignSockets : public ::testing::TestWithParam<std::string> {
 protected:
  static void run(const std::function<void(Communicator)>& body) {
    testing::run_ranks(2, body, {.backend = GetParam()});
  }
};
INSTANTIATE_TEST_SUITE_P(Beside, ForeignSockets, ::testing::Values("sockets", "gloo"),
                         [](const auto& test) { return test.param; });

TEST_P(ForeignSockets, SurviveTheGroupsThatWereMadeMeanwhile) {
  run([](const Communicator& comm) {
    Opener opener;
    for (int i = 0; i < 3; ++i) end_in_disorder(comm);
    const auto pairs = opener.stop();
    ASSERT_GT(pairs.size(), 2U);
    for (const auto& [one, other] : pairs) {
      ASSERT_EQ(send(one.get(), "x", 1, MSG_NOSIGNAL), 1);
      ASSERT_EQ(fcntl(one.get(), F_GETFD), 0);
    }
  });
}

// Ranks as threads: what belongs to whom in Gloo can be told by nothing but the loops.
TEST_P(ForeignSockets, OfAGroupMadeAtTheSameTimeGoOn) {
  run([](const Communicator& comm) {
    const auto one = *comm.new_group({0, 1}), two = *comm.new_group({0, 1});
    std::optional<Communicator> made;
    std::jthread other([&] { made = two.new_group({0, 1}); });
    end_in_disorder(one);
    other.join();
    for (int i = 0; i < 3; ++i) made->all_reduce(at::ones({100'000}));
  });
}

}  // namespace
}  // namespace lockstep
