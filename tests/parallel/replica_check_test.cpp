// Copies of a parameter on several ranks, after writes to some of them.
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "parallel/replica_check.h"
#include "support/expect_error.h"

namespace lockstep::detail {
namespace {

using test::expect_error;

struct Copies {
  explicit Copies(const Communicator& comm, int shards = 1)
      : check(comm, 2, [this, shards](std::size_t i) {
          return Replica{.name = i == 0 ? "a" : "b", .tensor = tensors[i], .shards = shards};
        }) {}
  std::vector<at::Tensor> tensors = {at::ones({3, 2}).t(), at::ones({2})};
  ReplicaCheck check;
};

TEST(ReplicaCheck, NamesTheParameterAndTheRanksOnAll) {
  testing::run_ranks(3, [](const Communicator& comm) {
    Copies copies(comm);
    copies.check.compare();
    copies.tensors[1].fill_(comm.rank() == 1 ? 2 : 3);
    copies.check.compare();  // nobody has noted a write
    if (comm.rank() == 1) copies.check.note_write(1);
    expect_error<Error>([&] { copies.check.compare(); }, {"parameter b differs between ranks",
                                                          "those of rank 0 and 2, others: those of rank 1"});
  });
}

TEST(ReplicaCheck, ComparesAfterPowersOfTwoAndEvery64Steps) {
  testing::run_ranks(2, [](const Communicator& comm) {
    Copies copies(comm);
    std::vector<int> compared;
    for (int step = 1; step <= 200; ++step) {
      if (comm.rank() == 0) copies.check.note_write(0);
      copies.tensors[0].fill_(comm.rank());
      try {
        copies.check.end_step();
      } catch (const Error&) {
        compared.push_back(step);
      }
    }
    EXPECT_EQ(compared, (std::vector{1, 2, 4, 8, 16, 32, 64, 128, 192}));
  });
}

TEST(ReplicaCheck, ComparesRanksOfOneShard) {
  testing::run_ranks(4, [](const Communicator& comm) {
    Copies copies(comm, /*shards=*/2);
    copies.tensors[0].fill_(comm.rank() % 2);
    copies.check.note_write(0);
    copies.check.compare();
    copies.tensors[0].fill_(comm.rank() == 3 ? 5 : comm.rank() % 2);
    copies.check.note_write(0);
    expect_error<Error>([&] { copies.check.compare(); },
                        {"parameter a", "those of rank 1, others: those of rank 3"});
  });
}

TEST(WriteVersions, NoteWhatIsWrittenBesideAStep) {
  testing::run_ranks(2, [](const Communicator& comm) {
    Copies copies(comm);
    WriteVersions versions(copies.tensors);
    copies.tensors[0].fill_(comm.rank());
    versions.settle();
    versions.note_writes(copies.check);
    copies.check.compare();
    copies.tensors[1].detach().fill_(comm.rank());
    versions.note_writes(copies.check);
    expect_error<Error>([&] { copies.check.compare(); }, {"parameter b"});
  });
}

TEST(WriteVersions, NoteOtherMemory) {
  testing::run_ranks(2, [](const Communicator& comm) {
    Copies copies(comm), others(comm);
    WriteVersions versions(copies.tensors);
    copies.tensors[1].set_data(at::full({2}, 3.0));  // goes, and its memory could come again
    copies.tensors[1].set_data(at::full({2}, 1.0 * comm.rank()));
    versions.note_writes(copies.check);
    expect_error<Error>([&] { copies.check.compare(); }, {"parameter b"});
    versions.settle();
    others.tensors[1].fill_(comm.rank());
    versions.note_writes(others.check);
    others.check.compare();  // nothing was noted
  });
}

}  // namespace
}  // namespace lockstep::detail
