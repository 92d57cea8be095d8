// The contract of the collectives that move tensors, and of monitored_barrier.
#include <gtest/gtest.h>

#include <array>

#include <lockstep/base/error.h>

#include "comm/combined.h"
#include "comm/communicator_contract.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

using testing::by_rank;
using testing::contract_rank;
using testing::values;

using Tensors = std::vector<at::Tensor>;

class CommunicatorMoves : public testing::Contract {
 protected:
  static at::Tensor zeros(std::int64_t rows, at::ScalarType dtype = at::kFloat) {
    return at::zeros({rows, 3}, of(dtype));
  }

  // Rank r has r rows, so that rank 0 has nothing.
  static at::Tensor uneven(int rank, at::ScalarType dtype = at::kFloat) {
    return values(rank, {rank, 3}, of(dtype));
  }

  // What rank `src` gives to rank `dst` in all_to_all: src + 2 dst rows, distinct for all pairs.
  static at::Tensor parcel(int src, int dst, at::ScalarType dtype = at::kFloat) {
    return values(5 * src + dst, {src + 2 * dst, 3}, of(dtype));
  }
};

INSTANTIATE_TEST_SUITE_P(Contract, CommunicatorMoves, ::testing::ValuesIn(testing::worlds()),
                         testing::name_of_world);

void expect_equal(const Tensors& tensors, const Tensors& expected) {
  ASSERT_EQ(tensors.size(), expected.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(tensors[i].equal(expected[i])) << i;
}

TEST_P(CommunicatorMoves, AllGatherOfUnevenTensors) {
  run([](const Communicator& comm) {
    for (const auto dtype : test::kCollectiveDtypes) {
      const auto outputs = by_rank(size(), [&](int rank) { return zeros(rank, dtype); });
      comm.all_gather(outputs, uneven(comm.rank(), dtype));
      expect_equal(outputs, by_rank(size(), [&](int rank) { return uneven(rank, dtype); }));
    }
  });
}

TEST_P(CommunicatorMoves, GatherToEveryRoot) {
  run([](const Communicator& comm) {
    for (const auto dtype : test::kCollectiveDtypes) {
      for (int root = 0; root < size(); ++root) {
        const auto outputs =
            comm.rank() == root ? by_rank(size(), [&](int rank) { return zeros(rank, dtype); }) : Tensors();
        comm.gather(outputs, uneven(comm.rank(), dtype), root);
        if (comm.rank() == root) {
          expect_equal(outputs, by_rank(size(), [&](int rank) { return uneven(rank, dtype); }));
        }
      }
    }
  });
}

TEST_P(CommunicatorMoves, ScatterFromEveryRoot) {
  run([](const Communicator& comm) {
    for (const auto dtype : test::kCollectiveDtypes) {
      for (int root = 0; root < size(); ++root) {
        const auto inputs =
            comm.rank() == root ? by_rank(size(), [&](int rank) { return uneven(rank, dtype); }) : Tensors();
        const auto output = zeros(comm.rank(), dtype);
        comm.scatter(output, inputs, root);
        EXPECT_TRUE(output.equal(uneven(comm.rank(), dtype))) << dtype << " root " << root;
      }
    }
  });
}

TEST_P(CommunicatorMoves, AllToAllOfEqualParts) {
  run([](const Communicator& comm) {
    for (const auto dtype : test::kCollectiveDtypes) {
      const auto output = zeros(2 * size(), dtype);
      comm.all_to_all(output, values(comm.rank(), {2 * size(), 3}, of(dtype)));
      const auto parts = by_rank(size(), [&](int rank) {
        return values(rank, {2 * size(), 3}, of(dtype)).narrow(0, 2 * comm.rank(), 2);
      });
      EXPECT_TRUE(output.equal(at::cat(parts))) << dtype;
    }
  });
}

TEST_P(CommunicatorMoves, AllToAllOfUnevenParts) {
  run([](const Communicator& comm) {
    for (const auto dtype : test::kCollectiveDtypes) {
      const auto given = by_rank(size(), [&](int rank) { return parcel(comm.rank(), rank, dtype); });
      const auto taken = by_rank(size(), [&](int rank) { return parcel(rank, comm.rank(), dtype); });
      const auto outputs =
          by_rank(size(), [&](int rank) { return at::zeros_like(taken[static_cast<std::size_t>(rank)]); });
      comm.all_to_all(outputs, given);
      expect_equal(outputs, taken);

      std::vector<std::int64_t> input_splits;
      std::vector<std::int64_t> output_splits;
      for (const auto& tensor : given) input_splits.push_back(tensor.size(0));
      for (const auto& tensor : taken) output_splits.push_back(tensor.size(0));
      const auto output = at::zeros_like(at::cat(taken));
      comm.all_to_all(output, at::cat(given), output_splits, input_splits);
      EXPECT_TRUE(output.equal(at::cat(taken))) << dtype;
    }
  });
}

TEST_P(CommunicatorMoves, NothingAtAll) {
  run([](const Communicator& comm) {
    const auto nothing = [](int) { return zeros(0); };
    const bool is_root = comm.rank() == 0;
    comm.all_gather(by_rank(size(), nothing), zeros(0));
    comm.gather(is_root ? by_rank(size(), nothing) : Tensors(), zeros(0));
    comm.scatter(zeros(0), is_root ? by_rank(size(), nothing) : Tensors());
    comm.all_to_all(zeros(0), zeros(0));
    comm.all_to_all(by_rank(size(), nothing), by_rank(size(), nothing));
    comm.broadcast(zeros(0));
    comm.barrier();
  });
}

TEST_P(CommunicatorMoves, StridedTensorsAndLeaves) {
  run([](const Communicator& comm) {
    const auto column = [](int rank) { return values(rank, {4, 3}, of()).t().set_requires_grad(true); };
    const auto outputs = by_rank(size(), [](int) { return at::zeros({4, 6}, of()).slice(1, 0, 6, 2).t(); });
    comm.all_gather(outputs, column(comm.rank()));
    expect_equal(outputs, by_rank(size(), [&](int rank) { return column(rank).detach(); }));

    const auto scattered = at::zeros({4, 3}, of()).set_requires_grad(true);
    const auto view = scattered.t();
    comm.scatter(view, comm.rank() == 0 ? by_rank(size(), column) : Tensors());
    EXPECT_TRUE(view.equal(column(comm.rank())));
    EXPECT_TRUE(scattered.is_leaf());

    const auto exchanged = at::zeros({3, size()}, of()).t();
    comm.all_to_all(exchanged, at::full({3, size()}, comm.rank(), of()).t());
    for (int rank = 0; rank < size(); ++rank) EXPECT_EQ(exchanged[rank][2].item<int>(), rank);
  });
}

TEST_P(CommunicatorMoves, AsynchronousOnesKeepTheirOrder) {
  run([](const Communicator& comm) {
    const auto tensor = at::full({1000}, comm.rank() + 1.0, of(at::kDouble));
    const auto gathered = by_rank(size(), [](int) { return at::zeros({1000}, of(at::kDouble)); });
    const auto scattered = at::zeros({1000}, of(at::kDouble));
    const auto exchanged = by_rank(size(), [](int) { return at::zeros({1000}, of(at::kDouble)); });
    const bool is_root = comm.rank() == 0;
    // Of tensors on a device, what one gives may be read when the next is called.
    const auto issued = [](Work work) {
      if (!of().device().is_cpu()) work.wait();
      return work;
    };
    const std::vector<Work> works = {
        issued(comm.all_reduce_async(tensor)),
        issued(comm.all_gather_async(gathered, tensor)),
        issued(comm.gather_async(is_root ? gathered : Tensors(), tensor)),
        issued(comm.scatter_async(scattered, is_root ? gathered : Tensors())),
        issued(comm.all_to_all_async(exchanged, by_rank(size(), [&](int) { return scattered; }))),
        issued(comm.reduce_async(tensor, 0)),
        issued(comm.all_to_all_async(tensor.slice(0, 0, size()), at::ones({size()}, of(at::kDouble)))),
        issued(comm.barrier_async())};
    works.back().wait();
    for (const auto& work : works) {
      if (contract_rank())
        work.wait_host();  // connected devices may be behind, while the barrier is the host's
      EXPECT_TRUE(work.is_completed());
    }
    const double sum = size() * (size() + 1) / 2.0;
    for (const auto& output : exchanged) EXPECT_EQ(output[999].item<double>(), sum);
    EXPECT_EQ(tensor[0].item<double>(), 1);
    EXPECT_EQ(tensor[999].item<double>(), is_root ? sum * size() : sum);
  });
}

TEST_P(CommunicatorMoves, BytesOfUnevenLength) {
  run([](const Communicator& comm) {
    const auto text_of = [](int rank) { return std::string(static_cast<std::size_t>(3 * rank), '\0') + "x"; };
    const int root = size() - 1;
    std::vector<std::string> all;
    for (int rank = 0; rank < size(); ++rank) all.push_back(text_of(rank));
    const bool is_root = comm.rank() == root;
    EXPECT_EQ(comm.gather_bytes(text_of(comm.rank()), root), is_root ? all : std::vector<std::string>());
    EXPECT_EQ(comm.scatter_bytes(is_root ? all : std::vector<std::string>(), root), text_of(comm.rank()));
  });
}

// Of 25 floats: all of them go to the root, or connected devices sum equal chunks, which then go there.
std::uint64_t bytes_of_reduce(bool is_root, std::uint64_t ranks) {
  if (!contract_rank()) return is_root ? 0 : 100;
  const auto chunk = (25 + ranks - 1) / ranks * 4;
  return (ranks - 1) * chunk + (is_root ? 0 : chunk);
}

TEST_P(CommunicatorMoves, CountsBytes) {
  run([](const Communicator& comm) {
    comm.all_reduce(at::ones({1}, of()));  // what devices need to know to be connected is sent with the first
    const auto others = static_cast<std::uint64_t>(size() - 1);
    const bool is_root = comm.rank() == 0;
    const auto whole = by_rank(size(), [](int) { return at::ones({25}, of()); });
    const auto sent = [&](const std::function<void()>& body) {
      const auto before = comm.bytes_sent();
      body();
      return comm.bytes_sent() - before;
    };
    EXPECT_EQ(sent([&] { comm.all_gather(whole, at::ones({25}, of())); }), 100 * others);
    EXPECT_EQ(sent([&] { comm.gather(is_root ? whole : Tensors(), at::ones({25}, of())); }),
              is_root ? 0 : 100);
    EXPECT_EQ(sent([&] { comm.scatter(at::ones({25}, of()), is_root ? whole : Tensors()); }),
              is_root ? 100 * others : 0);
    EXPECT_EQ(
        sent([&] { comm.all_to_all(whole, by_rank(size(), [](int) { return at::ones({25}, of()); })); }),
        100 * others);
    EXPECT_EQ(sent([&] { comm.reduce(at::ones({25}, of())); }), bytes_of_reduce(is_root, others + 1));
  });
}

TEST_P(CommunicatorMoves, RefusesWhatItCannotTake) {
  run([](const Communicator& comm) {
    const auto expect_refusal = [](const std::function<void()>& body, const std::vector<std::string>& parts) {
      test::expect_error<CommError>(body, parts);
    };
    const auto one = at::ones({2}, of());
    const Tensors all(static_cast<std::size_t>(size()), one);
    const Tensors too_many(static_cast<std::size_t>(size()) + 1, one);
    const Tensors longs(static_cast<std::size_t>(size()), at::ones({2}, of(at::kLong)));
    const Tensors longer(static_cast<std::size_t>(size()), at::ones({3}, of()));
    const auto outside = std::to_string(size());
    expect_refusal([&] { comm.reduce(one, size()); }, {"reduce: root", outside});
    expect_refusal([&] { comm.reduce(one, -1); }, {"reduce: root", "-1"});
    expect_refusal([&] { comm.all_gather(too_many, one); }, {"all_gather", "one tensor per rank"});
    expect_refusal([&] { comm.all_gather(longs, one); }, {"dtype", "Long", "Float"});
    expect_refusal([&] { comm.all_gather(longer, one); }, {"size", "2 elements", "3"});
    expect_refusal([&] { comm.all_gather(all, at::Tensor()); }, {"undefined"});
    expect_refusal([&] { comm.gather(too_many, one, comm.rank()); }, {"gather", "one tensor per rank"});
    expect_refusal([&] { comm.gather(all, one, size()); }, {"gather: root", outside});
    expect_refusal([&] { comm.scatter(one, Tensors(), comm.rank()); }, {"scatter", "one tensor per rank"});
    expect_refusal([&] { comm.all_to_all(all, too_many); }, {"all_to_all", "one tensor per rank"});
    expect_refusal([&] { comm.all_to_all(all, Tensors()); }, {"all_to_all", "one tensor per rank"});
    expect_refusal([&] { comm.all_to_all(one, one, std::vector<std::int64_t>{-1, 3}); }, {"splits", "-1"});
    if (size() == 1) return;
    const int other = (comm.rank() + 1) % size();
    expect_refusal([&] { comm.gather(all, one, other); }, {"root", "empty list"});
    expect_refusal([&] { comm.scatter(one, all, other); }, {"root", "empty list"});
    const auto odd = at::ones({size() + 1}, of());
    expect_refusal([&] { comm.all_to_all(odd, odd); }, {"splits", std::to_string(size() + 1) + " rows"});
    comm.barrier();  // and is none the worse for it
  });
}

// A rank that finds out when the others are done already would leave them with another result.
TEST_P(CommunicatorMoves, RefusesMemoryThatItCannotWrite) {
  run([](const Communicator& comm) {
    const auto expect_refusal = [](const std::function<void()>& body, const std::string& part) {
      test::expect_error<CommError>(body, {part});
    };
    const auto repeated = at::ones({1}, of()).expand({4});
    const auto whole = at::ones({size(), 4}, of());
    const auto rows = whole.unbind();
    expect_refusal([&] { comm.all_reduce(repeated); }, "all_reduce: an output holds one element in several");
    expect_refusal([&] { comm.broadcast(repeated); }, "several places");
    expect_refusal([&] { comm.all_to_all(whole, whole); }, "all_to_all: an output shares memory");
    expect_refusal([&] { comm.all_to_all(at::ones({}, of()), at::ones({}, of())); }, "one dimension or more");
    if (size() == 1) return;
    expect_refusal([&] { comm.all_to_all(rows, rows); }, "shares memory");
    expect_refusal([&] { comm.all_gather(Tensors(rows.size(), rows[0]), at::ones({4}, of())); },
                   "shares memory");
    expect_refusal(
        [&] { comm.all_gather(whole, rows[static_cast<std::size_t>((comm.rank() + 1) % size())]); },
        "shares memory");
    const Tensors given(rows.size(),
                        rows[static_cast<std::size_t>(comm.rank())]);  // to all, not to itself only
    expect_refusal([&] { comm.all_to_all(rows, given); }, "shares memory");
    comm.barrier();
  });
}

// Others would read what is a sum already.
TEST_P(CommunicatorMoves, RefusesSumsInThePlaceOfWhatOthersRead) {
  if (size() == 1) return;
  run([](const Communicator& comm) {
    const auto whole = at::ones({size(), 4}, of());
    const auto expect_refusal = [&](const at::Tensor& output) {
      test::expect_error<CommError>([&] { comm.reduce_scatter(output, whole); },
                                    {"reduce_scatter: an output shares memory with another tensor"});
    };
    expect_refusal(whole[(comm.rank() + 1) % size()]);
    const auto own = comm.rank() * 4;
    expect_refusal(whole.view({-1}).narrow(0, comm.rank() == 0 ? own + 1 : own - 1, 4));
    comm.barrier();
  });
}

TEST_P(CommunicatorMoves, SumsMayLieInThePlaceOfTheOwnPart) {
  run([](const Communicator& comm) {
    for (const std::int64_t numel : {4, 30'000, 100'007}) {
      const auto numbers = at::arange(size() * numel, of()).remainder(1009).view({size(), numel});
      const auto whole = numbers + comm.rank();
      comm.reduce_scatter(whole[comm.rank()], whole);
      auto expected = numbers + comm.rank();
      expected[comm.rank()] = numbers[comm.rank()] * size() + size() * (size() - 1) / 2;
      EXPECT_TRUE(whole.equal(expected));
    }
  });
}

TEST_P(CommunicatorMoves, WhatARankGivesToItselfMayLieInItsPlace) {
  run([](const Communicator& comm) {
    for (const std::int64_t numel : {4, 30'000}) {
      const auto whole = at::zeros({size(), numel}, of());
      whole[comm.rank()].fill_(comm.rank() + 1);
      comm.all_gather(whole, whole[comm.rank()]);
      const auto rows = at::zeros({size(), numel}, of()).unbind();
      const auto own = rows[static_cast<std::size_t>(comm.rank())];
      comm.all_gather(rows, own.fill_(comm.rank() + 1));
      for (int rank = 0; rank < size(); ++rank) {
        EXPECT_EQ(whole[rank][numel - 1].item<int>(), rank + 1);
        EXPECT_EQ(rows[static_cast<std::size_t>(rank)][numel - 1].item<int>(), rank + 1);
      }
      const auto columns = at::zeros({numel, size()}, of()).unbind(1);  // between each other
      comm.all_gather(columns, at::full({numel}, comm.rank() + 1.0F, of()));
      EXPECT_EQ(columns[0][numel - 1].item<int>(), 1);
    }
  });
}

TEST_P(CommunicatorMoves, MonitoredBarrierNamesWhoIsMissing) {
  run([](const Communicator& comm) {
    for (int i = 0; i < 3; ++i) comm.monitored_barrier(std::chrono::seconds(20));
    if (size() == 1) return;
    const int absent = size() - 1;
    if (comm.rank() != absent) {
      test::expect_error<Timeout>([&] { comm.monitored_barrier(std::chrono::milliseconds(200)); },
                                  {"rank " + std::to_string(absent) + " did not come to monitored_barrier"});
    }
    comm.barrier();  // nothing is broken
    if (!GetParam().is_checked) return;
    comm.monitored_barrier(std::chrono::seconds(60));  // nor does the rank lag behind by one
    comm.monitored_barrier(std::chrono::milliseconds::max());
  });
}

}  // namespace
}  // namespace lockstep
