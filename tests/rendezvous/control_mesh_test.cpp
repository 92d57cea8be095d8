// What ranks learn of each other before, and instead of, a collective.
#include "rendezvous/control_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include "rendezvous/mesh_threads.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
using testing::all_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::in;
using ::testing::IsEmpty;
using testing::kStuck;
using testing::on_mesh;
using testing::op;
using Mesh = std::unique_ptr<rendezvous::ControlMesh>;

class ControlMeshOfRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ControlMeshOfRanks, ::testing::Values(1, 2, 3, 4, 7));

TEST_P(ControlMeshOfRanks, MeetsAgainAndAgainAndCarriesPayloads) {
  std::atomic<int> taken{0};
  const auto errors = on_mesh(GetParam(), [&](Mesh& mesh) {
    const auto members = all_of(*mesh);
    for (std::uint64_t sequence = 1; sequence <= 200; ++sequence) {
      const auto payload = std::to_string(mesh->rank() * 1000 + static_cast<int>(sequence));
      mesh->meet({.announcement = op(3, 1, sequence), .members = members, .payload = payload},
                 [&](int rank, std::string_view data) {
                   taken += data == std::to_string(rank * 1000 + static_cast<int>(sequence));
                 });
    }
    mesh->leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_EQ(taken, 200 * GetParam() * (GetParam() - 1));
}

TEST_P(ControlMeshOfRanks, ServesSeveralGroupsAtOnce) {
  const auto errors = on_mesh(GetParam(), [&](Mesh& mesh) {
    const auto members = all_of(*mesh);
    std::vector<std::jthread> threads;
    for (std::uint64_t group = 1; group <= 3; ++group) {
      threads.emplace_back([&, group] {
        for (std::uint64_t sequence = 1; sequence <= 100; ++sequence) {
          mesh->meet({.announcement = op(1, group, sequence), .members = members});
        }
      });
    }
    threads.clear();
    mesh->leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ControlMeshFailure, DifferentAnnouncementsAreAMismatchInTheSameWords) {
  std::latch all_here(3);
  const auto errors = on_mesh(3, [&](Mesh& mesh) {
    all_here.arrive_and_wait();
    mesh->meet(
        {.announcement = op(mesh->rank() == 2 ? 9 : 4), .members = all_of(*mesh), .deadline = in(20s)});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("ranks do not call the same collective"),
                                 HasSubstr("ranks 0, 1: op 4 in group 1, seq 1; rank 2: op 9 in group 1"))));
}

TEST(ControlMeshFailure, ALostRankIsNamedEverywhereThoughOthersLeaveToo) {
  const auto begin = steady_clock::now();
  const auto errors = on_mesh(4, [](Mesh& mesh) {
    if (mesh->rank() == 2) return mesh.reset();
    mesh->meet({.announcement = op(1), .members = all_of(*mesh), .deadline = in(20s)});
  });
  for (const std::size_t rank : {0, 1, 3}) EXPECT_THAT(errors[rank], HasSubstr("rank 2 is gone"));
  EXPECT_LT(steady_clock::now() - begin, 5s);
}

TEST(ControlMeshFailure, WhoSaidGoodbyeIsMissedOnlyWhereItIsNeeded) {
  std::latch all_done(3);
  const auto errors = on_mesh(3, [&](Mesh& mesh) {
    if (mesh->rank() == 2) {
      mesh->leave();
      mesh.reset();
      return all_done.count_down();
    }
    all_done.arrive_and_wait();
    const int pair[] = {0, 1};
    mesh->meet({.announcement = op(1, 5), .members = pair, .deadline = in(20s)});
    mesh->meet({.announcement = op(1), .members = all_of(*mesh), .deadline = in(20s)});
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 2 left the group before a collective of all"));
  EXPECT_THAT(errors[1], HasSubstr("rank 2 left the group before a collective of all"));
}

TEST(ControlMeshFailure, AbsenceIsATimeoutThatTellsWhereTheRankIs) {
  std::latch all_done(3);
  const auto errors = on_mesh(3, [&](Mesh& mesh) {
    if (mesh->rank() != 1) {
      EXPECT_THROW(mesh->meet({.announcement = op(1), .members = all_of(*mesh), .deadline = in(2s)}),
                   Timeout);
    }
    all_done.arrive_and_wait();
    mesh->meet({.announcement = op(1, 1, 2), .members = all_of(*mesh), .deadline = in(20s)});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1 did not come to op 1 in group 1, seq 1 in time"),
                                 HasSubstr("rank 1 is outside of collectives"))));
}

TEST(ControlMeshFailure, RanksThatWaitForEachOtherInDifferentGroupsAreNamedSoon) {
  const auto begin = steady_clock::now();
  const auto errors = on_mesh(3, [&](Mesh& mesh) {
    const int pair[] = {1, 2};
    const auto everybody = all_of(*mesh);
    if (mesh->rank() == 1) {
      mesh->meet({.announcement = op(1, 5), .members = pair, .deadline = in(20s), .caller = &kStuck});
    } else {
      mesh->meet({.announcement = op(2, 1), .members = everybody, .deadline = in(20s), .caller = &kStuck});
    }
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("ranks wait for each other in different collectives"),
                                 HasSubstr("rank 1: op 1 in group 5, seq 1"),
                                 HasSubstr("rank 2: op 2 in group 1, seq 1"))));
  EXPECT_LT(steady_clock::now() - begin, 5s);
}

// A third thread may still come: only the deadline may end this.
TEST(ControlMeshFailure, RanksThatMayGoOnElsewhereAreLeftAlone) {
  const auto errors = on_mesh(2, [&](Mesh& mesh) {
    const auto everybody = all_of(*mesh);
    const std::uint64_t first = mesh->rank() == 0 ? 1 : 2;
    std::jthread late([&] {
      std::this_thread::sleep_for(300ms);
      mesh->meet({.announcement = op(1, 3 - first), .members = everybody, .deadline = in(20s)});
    });
    mesh->meet({.announcement = op(1, first), .members = everybody, .deadline = in(20s)});
    late.join();
    mesh->leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ControlMeshFailure, AbortIsCalledOnceSomeTimeAfterALoss) {
  std::atomic<int> aborted{0};
  (void)on_mesh(2, [&](Mesh& mesh) {
    if (mesh->rank() == 1) return;
    const auto token = mesh->on_failure([&] { ++aborted; });
    const auto dropped = mesh->on_failure([&] { aborted += 100; }).get();
    EXPECT_NE(dropped, nullptr);
    const auto deadline = in(10s);
    while (aborted == 0 && steady_clock::now() < deadline) std::this_thread::sleep_for(5ms);
    std::this_thread::sleep_for(50ms);
  });
  EXPECT_EQ(aborted, 1);
}

TEST(ControlMeshFailure, ExplainFindsTheLossOrSaysNothing) {
  std::latch asked(2);
  const auto errors = on_mesh(2, [&](Mesh& mesh) {
    const auto members = all_of(*mesh);
    mesh->explain(members, "all_reduce seq 3", 5s);
    asked.arrive_and_wait();
    if (mesh->rank() == 1) return mesh.reset();
    for (int i = 0; i < 100; ++i) {
      mesh->explain(members, "all_reduce seq 3", 100ms);
      std::this_thread::sleep_for(20ms);
    }
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1 is gone"), HasSubstr("rank 0, in all_reduce seq 3")));
}

}  // namespace
}  // namespace lockstep
