// Meetings that may fail without harm, and what is kept of meetings that are over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <random>

#include <lockstep/base/error.h>

#include "rendezvous/meetings.h"
#include "rendezvous/mesh_threads.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using rendezvous::Inbox;
using rendezvous::Meeting;
using ::testing::Each;
using testing::in;
using ::testing::IsEmpty;
using testing::on_mesh;
using testing::op;
using Mesh = std::unique_ptr<rendezvous::ControlMesh>;

Meeting harmless(std::span<const int> members, std::chrono::milliseconds time) {
  return {.announcement = op(1, 8),
          .members = members,
          .deadline = in(time),
          .keeps_group = false,
          .fails_job = false};
}

TEST(MeshRetry, WhoWasMissedMayComeLater) {
  std::latch given_up(3);
  const auto errors = on_mesh(3, [&](Mesh& mesh) {
    const auto everybody = testing::all_of(*mesh);
    if (mesh->rank() != 1) {
      EXPECT_THROW(mesh->meet(harmless(everybody, 50ms)), Timeout);
    }
    given_up.arrive_and_wait();
    mesh->meet({.announcement = op(2), .members = everybody, .deadline = in(60s)});
    mesh->meet(harmless(everybody, 60s));
    if (mesh->rank() == 0) {
      EXPECT_THROW(mesh->meet(harmless(everybody, 50ms)), Timeout);  // once more, the others do not
    }
    mesh->meet({.announcement = op(2, 1, 2), .members = everybody, .deadline = in(60s)});
    mesh->leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Ranks that give up while others come, over and over.
TEST(MeshRetry, GivingUpAtAnyMomentKeepsThemInStep) {
  const auto errors = on_mesh(3, [&](Mesh& mesh) {
    const auto everybody = testing::all_of(*mesh);
    std::mt19937 random(static_cast<unsigned>(mesh->rank()));
    for (int round = 0; round < 60; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 3));
      try {
        mesh->meet(harmless(everybody, std::chrono::milliseconds(random() % 3)));
      } catch (const Timeout&) {
      }
    }
    mesh->meet({.announcement = op(2), .members = everybody, .deadline = in(60s)});
    mesh->meet(harmless(everybody, 60s));
    mesh->meet({.announcement = op(2, 1, 2), .members = everybody, .deadline = in(60s)});
    mesh->leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(MeshRetry, NothingIsKeptOfGroupsThatAreOver) {
  const auto errors = on_mesh(2, [&](Mesh& mesh) {
    const auto both = testing::all_of(*mesh);
    const auto sync = [&](std::uint64_t sequence) {
      mesh->meet({.announcement = op(2, 1, sequence), .members = both, .deadline = in(60s)});
    };
    sync(1);
    const auto kept = mesh->groups_kept();
    sync(2);
    for (std::uint64_t group = 100; group < 200; ++group) {
      mesh->meet({.announcement = op(1, group), .members = both, .deadline = in(60s), .keeps_group = false});
      mesh->meet({.announcement = op(1, group + 1000), .members = both, .deadline = in(60s)});
      mesh->say_goodbye(group + 1000, both);
      mesh->leave(group + 1000, both);
    }
    sync(3);
    EXPECT_LE(mesh->groups_kept(), kept);
    sync(4);
    mesh->leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Inbox, ForgetsAGroupWhenAllHaveLeft) {
  const int members[] = {0, 1, 2};
  Inbox inbox(0);
  inbox.note_left(5, 1);
  EXPECT_TRUE(inbox.has_left(5, 1));
  inbox.leave(5, members);
  EXPECT_EQ(inbox.size(), 1);
  inbox.push(
      2, {.header = rendezvous::header_of(rendezvous::MessageKind::kAnnounce, {}, op(1, 5)), .payload = {}});
  EXPECT_EQ(inbox.front(5, 2), nullptr);
  inbox.note_left(5, 2);
  EXPECT_EQ(inbox.size(), 0);
}

}  // namespace
}  // namespace lockstep
