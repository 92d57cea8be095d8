// Whom ranks blame for what does not come about.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include <lockstep/base/error.h>

#include "rendezvous/mesh_threads.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using rendezvous::Meeting;
using rendezvous::Words;
using std::chrono::steady_clock;
using ::testing::AllOf;
using testing::connected_sockets;
using testing::ControlMesh;
using testing::describe_op;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::in;
using ::testing::IsEmpty;
using testing::kStuck;
using testing::on_mesh;
using testing::op;
using ::testing::StartsWith;

/// What a meeting failed with.
struct Outcome {
  std::string text;
  std::vector<int> ranks;
};

template <class E>
Outcome outcome_of(ControlMesh& mesh, const Meeting& meeting) {
  try {
    mesh.meet(meeting);
  } catch (const E& error) {
    return {error.what(), error.ranks()};
  }
  ADD_FAILURE() << "rank " << mesh.rank() << " met";
  return {};
}

// Ranks 0 and 1 wait for 2, which is inside of what they all met for before, because 3 has stopped there.
TEST(MeshBlame, ARankThatSaysNothingIsBlamedAndNotThoseThatItHoldsUp) {
  auto sockets = connected_sockets(4);
  ControlMesh two(2, std::move(sockets[2]),
                  Words{.describe = &describe_op, .activity = [] { return "all_reduce seq 6"; }});
  std::vector<Outcome> outcomes(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      ControlMesh mesh(rank, std::move(sockets[r]), Words{.describe = &describe_op});
      const int everybody[] = {0, 1, 2, 3};
      outcomes[r] = outcome_of<Timeout>(
          mesh, {.announcement = op(1, 1, 7), .members = everybody, .deadline = in(100ms)});
    });
  }
  threads.clear();
  for (const auto& outcome : outcomes) {
    EXPECT_THAT(outcome.ranks, ElementsAre(3));
    EXPECT_THAT(outcome.text,
                AllOf(HasSubstr("ranks 2, 3 did not come to op 1 in group 1, seq 7"),
                      HasSubstr("rank 2 is in all_reduce seq 6"), HasSubstr("rank 3 does not answer")));
  }
}

// Ranks that find out at the same moment each draw the conclusion: all must say the same.
TEST(MeshBlame, WhoAsksTellsOfItselfWhatOthersWouldTellOfIt) {
  auto sockets = connected_sockets(3);
  std::vector<std::string> texts(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<std::size_t>(rank);
      ControlMesh mesh(rank, std::move(sockets[r]),
                       Words{.describe = &describe_op, .activity = [] { return "all_reduce seq 6"; }});
      try {
        mesh.explain(testing::all_of(mesh), "", 0ms);
      } catch (const Timeout& error) {
        texts[r] = error.what();
      }
    });
  }
  threads.clear();
  for (const auto& text : texts) {
    EXPECT_THAT(text, HasSubstr("got rank 0 is in all_reduce seq 6; rank 1 is in all_reduce seq 6; rank 2 "
                                "does not answer"));
  }
}

// Rank 0 waits for 1, which waits elsewhere for 2, which computes.
TEST(MeshBlame, ARankThatIsHeldUpElsewhereIsNotBlamed) {
  std::latch all_waited(2);
  const auto errors = on_mesh(3, [&](std::unique_ptr<ControlMesh>& mesh) {
    const int first[] = {0, 1}, second[] = {1, 2};
    if (mesh->rank() == 2) return all_waited.wait();
    const auto outcome =
        mesh->rank() == 0
            ? outcome_of<Timeout>(*mesh, {.announcement = op(1, 5), .members = first, .deadline = in(2s)})
            : outcome_of<Timeout>(*mesh, {.announcement = op(2, 6), .members = second, .deadline = in(20s)});
    all_waited.count_down();
    EXPECT_THAT(outcome.ranks, ElementsAre(2));
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("rank 1 waits in op 2 in group 6"),
                                    HasSubstr("rank 2 is outside of collectives")));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(MeshBlame, ADifferenceIsToldThoughOthersHaveNotCome) {
  const auto begin = steady_clock::now();
  std::latch told(2);
  const auto errors = on_mesh(4, [&](std::unique_ptr<ControlMesh>& mesh) {
    if (mesh->rank() > 1) {
      told.wait();
    }
    const auto members = testing::all_of(*mesh);
    const Meeting meeting{
        .announcement = op(mesh->rank() == 1 ? 9 : 4), .members = members, .deadline = in(60s)};
    const auto outcome = outcome_of<CollectiveMismatch>(*mesh, meeting);
    if (mesh->rank() < 2) told.count_down();
    EXPECT_THAT(outcome.ranks, ElementsAre(0, 1)) << mesh->rank();
    EXPECT_THAT(outcome.text, HasSubstr("rank 0: op 4 in group 1, seq 1; rank 1: op 9 in group 1, seq 1"));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_LT(steady_clock::now() - begin, 10s);
}

TEST(MeshBlame, ACircleOfThreeGroupsIsNamedWhole) {
  const auto begin = steady_clock::now();
  const auto errors = on_mesh(4, [&](std::unique_ptr<ControlMesh>& mesh) {
    const int rank = mesh->rank();
    if (rank == 3) return mesh->leave();
    const int pair[] = {rank, (rank + 1) % 3};
    mesh->meet({.announcement = op(rank, static_cast<std::uint64_t>(10 + rank)),
                .members = pair,
                .deadline = in(60s),
                .caller = &kStuck});
  });
  for (const std::size_t rank : {0, 1, 2}) {
    EXPECT_THAT(errors[rank],
                AllOf(HasSubstr("ranks wait for each other in different collectives"),
                      HasSubstr("rank 0: op 0 in group 10, seq 1; rank 1: op 1 in group 11, seq 1; "
                                "rank 2: op 2 in group 12, seq 1")));
  }
  EXPECT_LT(steady_clock::now() - begin, 10s);
}

// Whoever is not certain to be stuck may yet be freed by a thread that nobody knows of.
TEST(MeshBlame, ACircleIsNamedOnlyOnceAllInItAreCertain) {
  const testing::StuckCaller unsure(1s);
  const auto errors = on_mesh(2, [&](std::unique_ptr<ControlMesh>& mesh) {
    const int both[] = {0, 1};
    const std::uint64_t first = mesh->rank() == 0 ? 1 : 2;
    const rendezvous::Caller* caller = mesh->rank() == 0 ? &kStuck : &unsure;
    std::jthread late([&] {
      std::this_thread::sleep_for(300ms);
      mesh->meet({.announcement = op(1, 3 - first), .members = both, .deadline = in(60s)});
    });
    mesh->meet({.announcement = op(1, first), .members = both, .deadline = in(60s), .caller = caller});
    late.join();
    mesh->leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(MeshBlame, WhoSentNonsenseIsNamed) {
  auto sockets = connected_sockets(2);
  ControlMesh mesh(0, std::move(sockets[0]), Words{.describe = &describe_op});
  const std::string nonsense = "no verdict";
  const auto header = rendezvous::header_of(rendezvous::MessageKind::kVerdict, nonsense);
  const auto& peer = sockets[1][0];
  ASSERT_EQ(::send(peer.get(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  ASSERT_EQ(::send(peer.get(), nonsense.data(), nonsense.size(), 0), static_cast<ssize_t>(nonsense.size()));
  const int both[] = {0, 1};
  const auto outcome =
      outcome_of<CommError>(mesh, {.announcement = op(1), .members = both, .deadline = in(20s)});
  EXPECT_THAT(outcome.ranks, ElementsAre(1));
  EXPECT_THAT(outcome.text, HasSubstr("rank 1 sent what is no message of this program"));
}

TEST(MeshBlame, WhoSaidGoodbyeIsNotSilent) {
  auto sockets = connected_sockets(3);
  ControlMesh zero(0, std::move(sockets[0]), Words{.describe = &describe_op});
  ControlMesh one(1, std::move(sockets[1]), Words{.describe = &describe_op});
  {
    ControlMesh two(2, std::move(sockets[2]), Words{.describe = &describe_op});
    two.leave();
  }
  const int everybody[] = {0, 1, 2};
  EXPECT_NO_THROW(zero.explain(everybody, "all_reduce seq 3", 1s));
}

}  // namespace
}  // namespace lockstep
