// Messages between two ranks: send and recv.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <thread>

#include <lockstep/base/error.h>

#include "comm/communicator_contract.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using testing::run_ranks;
using testing::values;

class Messages : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Messages, ::testing::Values(2, 3, 4));

int next(const Communicator& comm) { return (comm.rank() + 1) % comm.size(); }
int previous(const Communicator& comm) { return (comm.rank() + comm.size() - 1) % comm.size(); }

// Everybody sends first: none of them may wait for the receiver before it receives itself.
TEST_P(Messages, GoRoundARing) {
  run_ranks(GetParam(), [](const Communicator& comm) {
    for (const std::int64_t numel : {0, 1, 500'000}) {
      const auto sent = values(comm.rank(), {numel}, at::kFloat);
      const auto received = at::zeros({numel});
      const auto send = comm.send_async(sent, next(comm));
      const auto recv = comm.recv_async(received, previous(comm));
      send.wait();
      recv.wait();
      EXPECT_TRUE(send.is_completed() && recv.is_completed());
      EXPECT_TRUE(received.equal(values(previous(comm), {numel}, at::kFloat)));
    }
  });
}

TEST_P(Messages, BlockingOnesPassATokenOn) {
  run_ranks(GetParam(), [](const Communicator& comm) {
    const auto token = at::zeros({2, 3}, at::kBFloat16);
    if (comm.rank() > 0) comm.recv(token.t(), comm.rank() - 1);
    token.add_(1);
    if (comm.rank() + 1 < comm.size()) comm.send(token.t(), comm.rank() + 1);
    EXPECT_TRUE(token.eq(comm.rank() + 1).all().item<bool>());
  });
}

TEST_P(Messages, OfOneTagKeepTheirOrder) {
  run_ranks(GetParam(), [](const Communicator& comm) {
    std::vector<at::Tensor> received;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      received.push_back(at::zeros({i % 2 ? 3 : 20'000}));
      works.push_back(comm.send_async(at::full({i % 2 ? 3 : 20'000}, i).to(at::kFloat), next(comm)));
      works.push_back(comm.recv_async(received.back(), previous(comm)));
    }
    for (const auto& work : works) work.wait();
    for (int i = 0; i < 20; ++i) EXPECT_EQ(received[static_cast<std::size_t>(i)][2].item<int>(), i);
  });
}

// The receiver asks for the tags in the opposite order, blocking.
TEST_P(Messages, OfSeveralTagsDoNotWaitForEachOther) {
  run_ranks(GetParam(), [](const Communicator& comm) {
    if (comm.rank() == 0) {
      const auto first = comm.send_async(at::full({3}, 1.0), 1, 7);
      const auto second = comm.send_async(at::full({3}, 2.0), 1, 8);
      first.wait();
      second.wait();
    }
    if (comm.rank() == 1) {
      const auto tensor = at::zeros({3});
      comm.recv(tensor, 0, 8);
      EXPECT_EQ(tensor[0].item<int>(), 2);
      comm.recv(tensor, 0, 7);
      EXPECT_EQ(tensor[0].item<int>(), 1);
    }
  });
}

// A message under way holds up no collective, nor the reverse.
TEST_P(Messages, RunBesideCollectives) {
  run_ranks(GetParam(), [](const Communicator& comm) {
    const auto received = at::zeros({1000});
    const auto recv = comm.recv_async(received, previous(comm), 3);
    std::vector<at::Tensor> sums(10);
    std::vector<Work> works;
    for (auto& sum : sums) works.push_back(comm.all_reduce_async(sum = at::ones({30'000})));
    comm.barrier();
    EXPECT_FALSE(recv.is_completed());
    comm.barrier();
    comm.send(at::ones({1000}), next(comm), 3);
    recv.wait();
    for (const auto& work : works) work.wait();
    for (const auto& sum : sums) EXPECT_EQ(sum[29'999].item<int>(), comm.size());
    EXPECT_EQ(received[999].item<int>(), 1);
  });
}

TEST_P(Messages, AreCountedAndNamed) {
  run_ranks(GetParam(), [](const Communicator& comm) {
    const auto before = comm.bytes_sent();
    const auto received = at::zeros({100});
    const auto recv = comm.recv_async(received, previous(comm));
    while (comm.activity().empty()) std::this_thread::yield();
    EXPECT_EQ(comm.activity(), "recv from rank " + std::to_string(previous(comm)) + " seq 1");
    comm.barrier();
    comm.send(at::ones({100}), next(comm));
    recv.wait();
    EXPECT_EQ(comm.bytes_sent() - before, 400);
    EXPECT_EQ(comm.activity(), "");
  });
}

TEST_P(Messages, Bytes) {
  run_ranks(GetParam(), [](const Communicator& comm) {
    for (const auto& text : {std::string(), std::string("a\0b", 3), std::string(100'000, 'x')}) {
      if (comm.rank() == 0) comm.send_bytes(text, 1, 5);
      if (comm.rank() == 1) {
        EXPECT_EQ(comm.recv_bytes(0, 5), text);
      }
    }
  });
}

TEST_P(Messages, RefuseWhatTheyCannotTake) {
  run_ranks(GetParam(), [](const Communicator& comm) {
    const auto one = at::ones({1});
    const auto self = std::to_string(comm.rank());
    test::expect_error<CommError>([&] { comm.send(one, comm.rank()); },
                                  {"send: dst is this rank itself", self});
    test::expect_error<CommError>([&] { comm.recv(one, comm.rank()); },
                                  {"recv: src is this rank itself", self});
    test::expect_error<CommError>([&] { comm.send(one, comm.size()); }, {"dst is not a rank of the group"});
    test::expect_error<CommError>([&] { comm.recv(one, -1); }, {"src is not a rank of the group", "-1"});
    test::expect_error<CommError>([&] { comm.send(one, next(comm), -1); }, {"tag", "2147483646", "-1"});
    test::expect_error<CommError>([&] { comm.send(at::Tensor(), next(comm)); }, {"undefined"});
    comm.barrier();
  });
}

TEST(Messages, AreRefusedInAWorldOfOne) {
  EXPECT_THROW(Communicator().send(at::ones({1}), 0), CommError);
  EXPECT_THROW(Communicator().recv(at::ones({1}), 1), CommError);
}

TEST(Messages, ThatCannotMeetAreNamedOnBothSides) {
  run_ranks(2, [](const Communicator& comm) {
    test::expect_error<CollectiveMismatch>(
        [&] { comm.rank() == 0 ? comm.send(at::ones({3}), 1) : comm.recv(at::ones({3}), 0, 9); },
        {"rank 0: send and recv of float32 [3] from rank 0 to rank 1",
         "rank 1: send and recv of float32 [3] from rank 0 to rank 1, tag 9"});
  });
}

TEST(Messages, NeedAsManyElementsInAnyShape) {
  run_ranks(2, [](const Communicator& comm) {
    const auto square = at::zeros({2, 2});
    comm.rank() == 0 ? comm.send(at::arange(4).to(at::kFloat), 1) : comm.recv(square, 0);
    EXPECT_TRUE(comm.rank() == 0 || square[1][1].item<int>() == 3);
    test::expect_error<CollectiveMismatch>(
        [&] {
          comm.rank() == 0 ? comm.send(at::ones({2, 3}), 1) : comm.recv(square, 0);
        },
        {"rank 0: send and recv of float32 [6]", "rank 1: send and recv of float32 [4]"});
  });
}

TEST(Messages, ThatNobodyTakesTimeOutNamingTheOtherRank) {
  const auto body = [](const Communicator& comm) {
    if (comm.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(6));
    test::expect_error<Timeout>([&] { comm.send(at::ones({3}), 1); },
                                {"rank 1 did not come to send and recv", "rank 1 is outside of collectives"});
  };
  run_ranks(2, body, {.comm_timeout = std::chrono::seconds(3)});
}

TEST(Messages, AreRefusedAfterClose) {
  run_ranks(2, [](const Communicator& comm) {
    const auto received = at::zeros({3});
    const auto recv = comm.recv_async(received, 1 - comm.rank());
    const auto send = comm.send_async(at::ones({3}), 1 - comm.rank());
    comm.close();
    send.wait();
    recv.wait();
    EXPECT_EQ(received[0].item<int>(), 1);
    EXPECT_THROW(comm.send(at::ones({3}), 1 - comm.rank()), CommError);
    EXPECT_THROW((void)comm.recv_async(received, 1 - comm.rank(), 2), CommError);
  });
}

long count_threads() {
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// Whoever counts steps in tags would otherwise collect threads.
TEST(Messages, LeaveNoThreadBehindForEachTag) {
  run_ranks(2, [](const Communicator& comm) {
    comm.barrier();
    const auto before = count_threads();
    comm.barrier();
    for (int tag = 0; tag < 30; ++tag) {
      const auto send = comm.send_async(at::ones({3}), 1 - comm.rank(), tag);
      comm.recv_async(at::ones({3}), 1 - comm.rank(), tag).wait();
      send.wait();
    }
    for (int i = 0; i < 3000 && count_threads() > before; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_LE(count_threads(), before);
    comm.barrier();
    const auto late = comm.recv_async(at::ones({3}), 1 - comm.rank(), 7);
    comm.send_async(at::ones({3}), 1 - comm.rank(), 7).wait();
    late.wait();
  });
}

// Dropping the communicator ends a receive that nobody answers.
TEST(Messages, UnderWayFailWhenTheCommunicatorIsDropped) {
  run_ranks(2, [](const Communicator& comm) {
    auto pair = comm.new_group({0, 1});
    const auto recv = pair->recv_async(at::zeros({3}), 1 - comm.rank());
    while (pair->activity().empty()) std::this_thread::yield();
    comm.barrier();
    pair.reset();
    EXPECT_THROW(recv.wait(), CommError);
    comm.barrier();
  });
}

}  // namespace
}  // namespace lockstep
