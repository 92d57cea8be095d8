// The contract of Communicator, for every backend and number of ranks.
#include <lockstep/comm/communicator.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/rank_status.h>
#include <lockstep/comm/init.h>
#include <lockstep/testing/run_ranks.h>

namespace lockstep {
namespace {

using testing::run_ranks;

constexpr std::array kDtypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                at::kInt,    at::kShort, at::kChar, at::kByte};

struct World {
  int ranks = 1;
  Reduction reduction = Reduction::kOrdered;
  std::string backend = "sockets";
};

void PrintTo(const World& world, std::ostream* out) {
  *out << world.ranks << (world.reduction == Reduction::kFast ? " fast " : " ordered ") << world.backend;
}

class CommunicatorContract : public ::testing::TestWithParam<World> {
 protected:
  static int size() { return GetParam().ranks; }
  static void run(const std::function<void(Communicator)>& body) {
    run_ranks(size(), body, {.reduction = GetParam().reduction, .backend = GetParam().backend});
  }
  // Gloo's own sums know neither these types nor all elements of them.
  static bool can_reduce(at::ScalarType dtype) {
    return GetParam().reduction == Reduction::kOrdered || dtype != at::kShort;
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorContract,
                         ::testing::Values(World{1}, World{2}, World{3}, World{4}, World{2, Reduction::kFast},
                                           World{2, Reduction::kFast, "gloo"},
                                           World{3, Reduction::kFast, "gloo"},
                                           World{3, Reduction::kOrdered, "gloo"}),
                         [](const auto& test) {
                           return "Ranks" + std::to_string(test.param.ranks) +
                                  (test.param.reduction == Reduction::kFast ? "Fast" : "Ordered") +
                                  test.param.backend;
                         });

// Rank r contributes r + 1 + (0, 1, 2, ...) mod 3.
at::Tensor values(int rank, std::int64_t numel, at::ScalarType dtype) {
  return (at::arange(numel, at::kLong).remainder(3) + rank + 1).to(dtype);
}

at::Tensor expected_reduction(int ranks, std::int64_t numel, at::ScalarType dtype, ReduceOp op) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(values(rank, numel, at::kDouble));
  const auto stack = at::stack(all);
  switch (op) {
    case ReduceOp::kSum:
      return stack.sum(0).to(dtype);
    case ReduceOp::kAvg:
      return (stack.sum(0) / ranks).to(dtype);
    case ReduceOp::kMin:
      return stack.amin(0).to(dtype);
    case ReduceOp::kMax:
      return stack.amax(0).to(dtype);
    default:
      return stack.prod(0).to(dtype);
  }
  return {};
}

bool is_allowed(ReduceOp op, at::ScalarType dtype) {
  return op != ReduceOp::kAvg || at::isFloatingType(dtype);
}

constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

at::Tensor bools(bool first, bool second) { return at::tensor({int{first}, int{second}}).to(at::kBool); }

TEST_P(CommunicatorContract, KnowsItself) {
  run([](const Communicator& comm) {
    EXPECT_EQ(comm.size(), size());
    EXPECT_EQ(comm.backend(), size() == 1 ? "single" : GetParam().backend);
    EXPECT_LT(comm.rank(), comm.size());
    EXPECT_EQ(comm.activity(), "");
  });
}

TEST_P(CommunicatorContract, AllReduce) {
  run([](const Communicator& comm) {
    for (const auto dtype : kDtypes) {
      for (const auto op : kOps) {
        if (!is_allowed(op, dtype) || !can_reduce(dtype)) continue;
        for (const std::int64_t numel : {0, 1, 7, 1023, 50021}) {
          const auto tensor = values(comm.rank(), numel, dtype);
          comm.all_reduce(tensor, op);
          const auto expected = expected_reduction(size(), numel, dtype, op);
          // Gloo's own average of 16-bit floats rounds twice.
          const double tolerance = GetParam().reduction == Reduction::kFast ? 1e-2 : 0;
          EXPECT_TRUE(at::allclose(tensor.to(at::kDouble), expected.to(at::kDouble), tolerance, 0))
              << dtype << " op " << static_cast<int>(op) << " numel " << numel;
        }
      }
    }
  });
}

TEST_P(CommunicatorContract, ReduceScatter) {
  run([](const Communicator& comm) {
    for (const auto dtype : kDtypes) {
      for (const auto op : kOps) {
        if (!is_allowed(op, dtype) || !can_reduce(dtype)) continue;
        for (const std::int64_t part : {0, 1, 7, 5003}) {
          const auto input = values(comm.rank(), part * size(), dtype);
          const auto output = at::zeros({part}, dtype);
          comm.reduce_scatter(output, input, op);
          const auto whole = expected_reduction(size(), part * size(), dtype, op);
          const auto expected = whole.narrow(0, comm.rank() * part, part);
          const double tolerance = GetParam().reduction == Reduction::kFast ? 1e-2 : 0;
          EXPECT_TRUE(at::allclose(output.to(at::kDouble), expected.to(at::kDouble), tolerance, 0))
              << dtype << " op " << static_cast<int>(op) << " part " << part;
        }
      }
    }
  });
}

TEST_P(CommunicatorContract, BroadcastAndAllGather) {
  run([](const Communicator& comm) {
    auto dtypes = std::vector<at::ScalarType>(kDtypes.begin(), kDtypes.end());
    dtypes.push_back(at::kBool);
    for (const auto dtype : dtypes) {
      for (int root = 0; root < size(); ++root) {
        const auto tensor = values(comm.rank(), 5, dtype);
        comm.broadcast(tensor, root);
        EXPECT_TRUE(tensor.equal(values(root, 5, dtype))) << dtype;
      }
      const auto output = at::zeros({size(), 5}, dtype);
      comm.all_gather(output, values(comm.rank(), 5, dtype));
      for (int rank = 0; rank < size(); ++rank)
        EXPECT_TRUE(output[rank].equal(values(rank, 5, dtype))) << dtype;
    }
  });
}

TEST_P(CommunicatorContract, BoolIsAndOrOnly) {
  run([](const Communicator& comm) {
    if (GetParam().reduction == Reduction::kFast) return;
    const auto any = bools(comm.rank() == 0, false);
    comm.all_reduce(any, ReduceOp::kMax);
    EXPECT_TRUE(any.equal(bools(true, false)));
    const auto all = bools(comm.rank() != 0, true);
    comm.all_reduce(all, ReduceOp::kMin);
    EXPECT_TRUE(all.equal(bools(false, true)));
    EXPECT_THROW(comm.all_reduce(any), CommError);
  });
}

TEST_P(CommunicatorContract, TakesStridedTensorsAndLeaves) {
  run([](const Communicator& comm) {
    const auto base = at::zeros({4, 6});
    const auto columns = base.t().slice(0, 1, 3);
    columns.fill_(comm.rank() + 1);
    comm.all_reduce(columns);
    EXPECT_EQ(columns.sum().item<int>(), 8 * size() * (size() + 1) / 2);
    EXPECT_EQ(base.sum().item<int>(), columns.sum().item<int>());

    const auto leaf = at::ones({3}).set_requires_grad(true);
    comm.all_reduce(leaf);
    EXPECT_EQ(leaf[0].item<int>(), size());
    EXPECT_TRUE(leaf.is_leaf());

    const auto output = at::zeros({3, size()}).t();
    comm.all_gather(output, at::full({3, 1}, comm.rank()).t().to(at::kFloat));
    for (int rank = 0; rank < size(); ++rank) EXPECT_EQ(output[rank][2].item<int>(), rank);
  });
}

TEST_P(CommunicatorContract, ScalarsOfNoDimension) {
  run([](const Communicator& comm) {
    const auto loss = at::scalar_tensor(comm.rank() + 1.0, at::kFloat);
    comm.all_reduce(loss, ReduceOp::kAvg);
    EXPECT_FLOAT_EQ(loss.item<float>(), static_cast<float>(size() + 1) / 2);
  });
}

TEST_P(CommunicatorContract, AsynchronousOnesKeepTheirOrder) {
  run([](const Communicator& comm) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 40; ++i) {
      tensors.push_back(values(comm.rank(), i % 2 ? 10 : 30000, at::kFloat) + i);
      works.push_back(i % 3 ? comm.all_reduce_async(tensors.back()) : comm.broadcast_async(tensors.back()));
      if (i % 10 == 9) comm.barrier();
    }
    for (auto it = works.rbegin(); it != works.rend(); ++it) it->wait();
    for (int i = 0; i < 40; ++i) {
      const auto numel = i % 2 ? 10 : 30000;
      const auto sum = expected_reduction(size(), numel, at::kFloat, ReduceOp::kSum) + i * size();
      const auto expected = i % 3 ? sum : values(0, numel, at::kFloat) + i;
      EXPECT_TRUE(tensors[static_cast<std::size_t>(i)].equal(expected)) << i;
      EXPECT_TRUE(works[static_cast<std::size_t>(i)].is_completed());
    }
  });
}

TEST_P(CommunicatorContract, AsynchronousGatherAndScatter) {
  run([](const Communicator& comm) {
    const auto gathered = at::zeros({size() * 2});
    const auto scattered = at::zeros({2});
    const auto gather = comm.all_gather_async(gathered, at::full({2}, comm.rank()).to(at::kFloat));
    const auto scatter = comm.reduce_scatter_async(scattered, at::ones({size() * 2}), ReduceOp::kSum);
    const auto barrier = comm.barrier_async();
    barrier.wait();
    EXPECT_TRUE(gather.is_completed());
    scatter.wait();
    EXPECT_EQ(gathered[2 * size() - 1].item<int>(), size() - 1);
    EXPECT_EQ(scattered[1].item<int>(), size());
  });
}

TEST_P(CommunicatorContract, Bytes) {
  run([](const Communicator& comm) {
    const std::string mine(static_cast<std::size_t>(comm.rank() * 3), static_cast<char>('a' + comm.rank()));
    const auto all = comm.all_gather_bytes(mine);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
    EXPECT_EQ(all[0], "");
    EXPECT_EQ(all[static_cast<std::size_t>(comm.rank())], mine);
    EXPECT_EQ(comm.broadcast_bytes(comm.rank() == size() - 1 ? std::string("x\0y", 3) : "", size() - 1),
              std::string("x\0y", 3));
  });
}

TEST_P(CommunicatorContract, RefusesWhatItCannotTake) {
  run([](const Communicator& comm) {
    EXPECT_THROW(comm.all_reduce(at::Tensor()), CommError);
    EXPECT_THROW(comm.all_reduce(at::ones({2}, at::kInt), ReduceOp::kAvg), CommError);
    EXPECT_THROW(comm.all_reduce(at::ones({2}, at::kUInt32)), CommError);
    EXPECT_THROW(comm.all_reduce(at::ones({2}).to_sparse()), CommError);
    EXPECT_THROW(comm.broadcast(at::ones({2}), size()), CommError);
    EXPECT_THROW(comm.all_gather(at::ones({size() + 1}), at::ones({1})), CommError);
    EXPECT_THROW(comm.reduce_scatter(at::ones({1}), at::ones({size()}, at::kDouble)), CommError);
    comm.barrier();  // and is none the worse for it
  });
}

TEST_P(CommunicatorContract, CountsBytes) {
  run([](const Communicator& comm) {
    const auto ranks = static_cast<std::uint64_t>(size());
    const auto before = comm.bytes_sent();
    comm.broadcast(at::ones({100}));
    EXPECT_EQ(comm.bytes_sent() - before, comm.rank() == 0 ? 400 * (ranks - 1) : 0);
    const auto between = comm.bytes_sent();
    comm.all_reduce(at::ones({1200000}));
    // Slices are of whole cache lines, and so not quite equal.
    EXPECT_NEAR(static_cast<double>(comm.bytes_sent() - between),
                static_cast<double>(2 * 4800000 * (ranks - 1) / ranks), 5000);
  });
}

TEST_P(CommunicatorContract, BumpsVersions) {
  run([](const Communicator& comm) {
    const auto weight = at::ones({3}).set_requires_grad(true);
    const auto input = at::ones({3});
    const auto product = (weight * input).sum();
    comm.all_reduce(input);
    EXPECT_THROW(product.backward(), c10::Error);  // `input` is no longer what was saved
  });
}

TEST(Communicator, ClosedOnesRefuse) {
  run_ranks(2, [](const Communicator& comm) {
    const auto last = comm.all_reduce_async(at::ones({100000}));
    comm.close();
    last.wait();
    EXPECT_THROW(comm.barrier(), CommError);
    comm.close();
  });
}

TEST(Communicator, DroppedWorkFails) {
  run_ranks(2, [](const Communicator& comm) {
    Work work;
    {
      const auto copy = comm;
      work = copy.all_reduce_async(at::ones({10}));
    }
    work.wait();
  });
}

// Drops the communicator of rank 1 of two by `drop`, while rank 0 calls a collective. Returns its error.
std::string error_after_drop(const std::function<void(std::optional<Communicator>&)>& drop) {
  rank_status().outcome = RankOutcome::kRunning;  // an earlier test of this process may have failed a rank
  std::string error;
  const auto store = make_hash_store();
  const auto options = [](int rank) { return CommOptions{.rank = rank, .world_size = 2}; };
  const auto begin = std::chrono::steady_clock::now();
  const auto stays = std::async(std::launch::async, [&] {
    const auto comm = init_communicator(options(0), store);
    comm.barrier();
    try {
      comm.barrier();
    } catch (const PeerLost& lost) {
      error = lost.what();
    }
  });
  std::optional<Communicator> comm = init_communicator(options(1), store);
  comm->barrier();
  drop(comm);
  stays.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4)) << "close() waits longer";
  return error;
}

TEST(Communicator, DroppedOnesSayGoodbye) {
  const auto error = error_after_drop([](auto& comm) { comm.reset(); });
  EXPECT_THAT(error, ::testing::HasSubstr("rank 1 left the group before a collective of all"));
}

TEST(Communicator, OnesDroppedByAnErrorAreGone) {
  const auto error = error_after_drop([](auto& comm) {
    try {
      const auto last = *std::exchange(comm, std::nullopt);
      throw std::runtime_error("an error of this rank");
    } catch (const std::runtime_error&) {
    }
  });
  EXPECT_THAT(error, ::testing::HasSubstr("rank 1 is gone"));
}

// A rank that drops its communicator in the middle of a collective that the other never joins.
void drop_in_mid_collective(const std::function<std::future<void>(const Work&)>& wait_elsewhere) {
  std::promise<void> dropped;
  const auto release = dropped.get_future().share();
  const auto store = make_hash_store();
  const auto options = [](int rank) {
    return CommOptions{.rank = rank, .world_size = 2, .timeout = std::chrono::minutes(5)};
  };
  const auto idle = std::async(std::launch::async, [&] {
    const auto comm = init_communicator(options(1), store);
    release.wait();
    EXPECT_THROW(comm.barrier(), PeerLost);
  });
  std::future<void> waiter;
  {
    const auto comm = init_communicator(options(0), store);
    const auto work = comm.all_reduce_async(at::ones({100'000}));
    const auto next = comm.all_reduce_async(at::ones({3}));
    waiter = wait_elsewhere(next);
    while (comm.activity().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  dropped.set_value();
  if (waiter.valid()) {
    EXPECT_THROW(waiter.get(), CommError);
  }
}

TEST(Communicator, DroppedInMidCollectiveDoesNotWaitForTheTimeout) {
  const auto begin = std::chrono::steady_clock::now();
  drop_in_mid_collective([](const Work&) { return std::future<void>(); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
}

TEST(Communicator, DroppedWhileAnotherThreadRunsTheQueueWaitsForThatThread) {
  const auto begin = std::chrono::steady_clock::now();
  drop_in_mid_collective(
      [](const Work& work) { return std::async(std::launch::async, [work] { work.wait(); }); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
}

}  // namespace
}  // namespace lockstep
