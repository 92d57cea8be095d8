// c10d code on a Communicator's process group: what c10d's callers may issue.
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <stdexcept>
#include <thread>

#include <lockstep/base/error.h>

#include "comm/c10d.h"
#include "comm/communicator_contract.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::by_rank;
using testing::run_ranks;

using Tensors = std::vector<at::Tensor>;
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

constexpr int kRanks = 3;

at::Tensor mine(int rank) { return at::full({2}, rank + 1.0, at::kDouble); }
Tensors blanks() {
  return by_rank(kRanks, [](int) { return at::zeros({2}, at::kDouble); });
}

void expect_values(const Tensors& tensors, const std::vector<double>& expected) {
  ASSERT_EQ(tensors.size(), expected.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) EXPECT_EQ(tensors[i][1].item<double>(), expected[i]) << i;
}

void run(const std::function<void(const Group&, int)>& body) {
  run_ranks(kRanks, [&](const Communicator& comm) { body(detail::process_group(comm), comm.rank()); });
}

TEST(C10dAdapter, Reductions) {
  run([](const Group& group, int rank) {
    Tensors one{mine(rank)};
    group->reduce(one, {.reduceOp = c10d::ReduceOp::PRODUCT, .rootRank = 1})->wait();
    expect_values(one, {rank == 1 ? 6.0 : rank + 1.0});

    Tensors bits{at::full({2}, 1 << rank)};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::BOR;
    group->allreduce(bits, options)->wait();
    expect_values(bits, {7});

    Tensors several{mine(rank), mine(rank).to(at::kInt), mine(rank) * 2};
    const auto work = group->allreduce_coalesced(several);
    work->wait();
    expect_values(several, {6, 6, 12});
    EXPECT_EQ(work->result().size(), 3);

    Tensors output{at::zeros({2}, at::kDouble)};
    std::vector<Tensors> inputs{by_rank(kRanks, [&](int to) { return mine(rank) * (to + 1); })};
    group->reduce_scatter(output, inputs)->wait();
    expect_values(output, {6.0 * (rank + 1)});
  });
}

// The thread that calls back is the group's own, which then ends itself.
TEST(C10dAdapter, TheLastOwnerOfAGroupMayBeACallback) {
  run_ranks(2, [](const Communicator& comm) {
    auto group = comm.new_group({0, 1});
    const auto is_gone = std::make_shared<std::promise<void>>();
    if (comm.rank() == 1) std::this_thread::sleep_for(200ms);  // so that rank 0's is not done too early
    {
      Tensors tensors{mine(comm.rank())};
      const auto work = detail::process_group(*group)->allreduce(tensors);
      const auto last = std::make_shared<std::optional<Communicator>>(std::move(*group));
      group.reset();
      work->getFuture()->addCallback([last, is_gone](c10::ivalue::Future&) {
        std::this_thread::sleep_for(200ms);  // in which all other owners go
        last->reset();
        is_gone->set_value();
      });
    }
    EXPECT_EQ(is_gone->get_future().wait_for(30s), std::future_status::ready);
  });
}

TEST(C10dAdapter, ACallbackMayThrow) {
  run_ranks(2, [](const Communicator& comm) {
    const auto group = detail::process_group(comm);
    Tensors tensors{mine(comm.rank())};
    const auto work = group->allreduce(tensors);
    try {
      work->getFuture()->addCallback(
          [](c10::ivalue::Future&) { throw std::runtime_error("a fault of ours"); });
    } catch (const std::runtime_error&) {  // where the work is done already it is called here
    }
    std::this_thread::sleep_for(100ms);
    comm.all_reduce(at::ones({3}));
  });
}

TEST(C10dAdapter, Lists) {
  run([](const Group& group, int rank) {
    Tensors input{mine(rank)};
    std::vector<Tensors> gathered{blanks()};
    group->allgather(gathered, input)->wait();
    expect_values(gathered[0], {1, 2, 3});

    std::vector<Tensors> at_root;
    if (rank == 2) at_root.push_back(blanks());
    group->gather(at_root, input, {.rootRank = 2})->wait();
    if (rank == 2) expect_values(at_root[0], {1, 2, 3});

    Tensors scattered{at::zeros({2}, at::kDouble)};
    std::vector<Tensors> parts;
    if (rank == 0) parts.push_back(by_rank(kRanks, mine));
    group->scatter(scattered, parts)->wait();
    expect_values(scattered, {rank + 1.0});

    auto outputs = blanks();
    auto inputs = by_rank(kRanks, [&](int to) { return mine(rank) * 10 + to; });
    group->alltoall(outputs, inputs)->wait();
    expect_values(outputs, {10.0 + rank, 20.0 + rank, 30.0 + rank});
  });
}

TEST(C10dAdapter, Bases) {
  run([](const Group& group, int rank) {
    const auto backend = group->getBackend(c10::DeviceType::CPU);
    auto output = at::zeros({kRanks}, at::kDouble);
    auto input = at::arange(kRanks, at::kDouble) + 10.0 * rank;
    std::vector<std::int64_t> even;
    backend->alltoall_base(output, input, even, even)->wait();
    EXPECT_TRUE(output.equal(at::arange(kRanks, at::kDouble) * 10 + rank));

    Tensors wholes{at::zeros({kRanks}), at::zeros({kRanks}, at::kLong)};
    Tensors parts{at::full({1}, rank + 1.0f), at::full({1}, rank)};
    backend->allgather_into_tensor_coalesced(wholes, parts)->wait();
    EXPECT_TRUE(wholes[0].equal(at::arange(kRanks) + 1.0f));
    EXPECT_TRUE(wholes[1].equal(at::arange(kRanks)));

    Tensors sums{at::zeros({1}), at::zeros({1}, at::kLong)};
    backend->reduce_scatter_tensor_coalesced(sums, wholes)->wait();
    EXPECT_EQ(sums[0].item<int>(), kRanks * (rank + 1));
    EXPECT_EQ(sums[1].item<int>(), kRanks * rank);
  });
}

TEST(C10dAdapter, MessagesAndBarriers) {
  run([](const Group& group, int rank) {
    Tensors sent{mine(rank)};
    Tensors received{at::zeros({2}, at::kDouble)};
    const auto send = group->send(sent, (rank + 1) % kRanks, 4);
    const auto recv = group->recv(received, (rank + kRanks - 1) % kRanks, 4);
    send->wait();
    recv->wait();
    expect_values(received, {(rank + kRanks - 1) % kRanks + 1.0});
    group->barrier()->wait();
    group->monitoredBarrier({});
  });
}

TEST(C10dAdapter, RefusesWhatFitsNot) {
  run([](const Group& group, int rank) {
    Tensors input{mine(rank)};
    std::vector<Tensors> too_few{{at::zeros({2}, at::kDouble)}};
    EXPECT_THROW((void)group->allgather(too_few, input), CommError);
    std::vector<Tensors> two_lists{blanks(), blanks()};
    EXPECT_THROW((void)group->allgather(two_lists, input), CommError);
    EXPECT_THROW((void)group->send(input, rank, 0), CommError);
    group->barrier()->wait();
  });
}

}  // namespace
}  // namespace lockstep
