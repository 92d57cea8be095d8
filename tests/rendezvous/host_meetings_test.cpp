// Meetings of ranks on several hosts, which tell each other host by host: with boards that pass everything
// on, and with such as do not, or too late.
#include "rendezvous/host_meetings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <latch>
#include <mutex>
#include <random>
#include <utility>

#include "rendezvous/mesh_threads.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using rendezvous::Announcement;
using rendezvous::Hosts;
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
using HostMesh = std::unique_ptr<rendezvous::ControlMesh>;
using Number = std::uint64_t;

/// What the threads of a host share of one group.
struct HostMemory {
  struct Shown {
    Number count = 0;
    Announcement last[2] = {};
    std::string payloads[2] = {};
  };
  explicit HostMemory(int members) : shown(static_cast<std::size_t>(members)) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Shown> shown;  // by member
  std::string relayed = {};
  Number relayed_count = 0;
};

/// What goes wrong on a host.
struct Failing {
  bool passes_nothing_on = false;            // its first rank keeps what comes from others
  std::function<void()> before_bundle = {};  // what its first rank does while it should wait for its host
};

class ThreadBoard final : public rendezvous::HostBoard {
 public:
  ThreadBoard(HostMemory& memory, int first, int own, const Failing& failing)
      : memory_(memory), first_(first), own_(own), failing_(failing) {}

  void show(const Announcement& announcement, std::string_view payload) override {
    const std::lock_guard lock(memory_.mutex);
    auto& own = of(own_);
    const auto slot = ++own.count % 2;
    own.last[slot] = announcement;
    own.payloads[slot] = payload;
    memory_.changed.notify_all();
  }
  const Announcement* front(int rank) const override {
    const std::lock_guard lock(memory_.mutex);
    return has_come(rank) ? &of(rank).last[of(own_).count % 2] : nullptr;
  }
  std::string_view payload(int rank) const override {
    const std::lock_guard lock(memory_.mutex);
    return of(rank).payloads[of(own_).count % 2];
  }
  bool await_all() override {
    if (failing_.before_bundle && own_ == first_) failing_.before_bundle();
    return await([this] {
      bool all = true;
      for (std::size_t i = 0; i < memory_.shown.size(); ++i) all &= has_come(first_ + static_cast<int>(i));
      return all;
    });
  }
  bool is_ahead(int rank) const override {
    const std::lock_guard lock(memory_.mutex);
    return of(rank).count > of(own_).count;
  }
  void relay(std::string_view bytes) override {
    if (failing_.passes_nothing_on) return;
    const std::lock_guard lock(memory_.mutex);
    memory_.relayed = bytes;
    memory_.relayed_count = of(own_).count;
    memory_.changed.notify_all();
  }
  bool await_relay() override {
    return await([this] { return memory_.relayed_count >= of(own_).count; });
  }
  std::optional<std::string_view> relayed() const override {
    const std::lock_guard lock(memory_.mutex);
    if (memory_.relayed_count < of(own_).count) return std::nullopt;
    return memory_.relayed;
  }

 private:
  HostMemory::Shown& of(int rank) const { return memory_.shown[static_cast<std::size_t>(rank - first_)]; }
  bool has_come(int rank) const { return of(rank).count >= of(own_).count; }
  template <class Condition>
  bool await(const Condition& condition) {
    std::unique_lock lock(memory_.mutex);
    return memory_.changed.wait_for(lock, 10ms, condition);
  }

  HostMemory& memory_;
  int first_, own_;
  const Failing& failing_;
};

/// Ranks as threads, and what each host's share.
class HostsOfThreads {
 public:
  HostsOfThreads(int ranks, int members, Number group = 1) : ranks_(ranks), members_(members), group_(group) {
    for (int host = 0; host < ranks / members; ++host)
      memories_.push_back(std::make_unique<HostMemory>(members));
    failing_.resize(memories_.size());
  }

  /// A rank's part in the group, which meets again and again.
  class Rank {
   public:
    Rank(HostsOfThreads& all, rendezvous::ControlMesh& mesh)
        : mesh_(mesh), members_(all_of(mesh)), group_(all.group_) {
      const int first = mesh.rank() / all.members_ * all.members_;
      const auto host = static_cast<std::size_t>(mesh.rank() / all.members_);
      board_ = std::make_unique<ThreadBoard>(*all.memories_[host], first, mesh.rank(), all.failing_[host]);
      hosts_ = {.board = board_.get(), .most_payload = 100};
      for (int rank = 0; rank < all.ranks_; ++rank) {
        const bool is_here = rank / all.members_ == mesh.rank() / all.members_;
        (is_here ? hosts_.here : hosts_.elsewhere).push_back(rank);
        if (!is_here && rank % all.members_ == 0) hosts_.first_ranks.push_back(rank);
      }
      mesh.use_hosts(group_, hosts_);
    }

    using Take = rendezvous::ControlMesh::Take;
    /// The next meeting, for `number`.
    void meet(int number, std::string_view payload = {}, Deadline deadline = in(20s)) {
      meet(number, payload, deadline, {}, &kStuck);
    }
    void meet(int number, std::string_view payload, Deadline deadline, const Take& take,
              const rendezvous::Caller* caller) {
      mesh_.meet({.announcement = op(number, group_, ++sequence_),
                  .members = members_,
                  .payload = payload,
                  .deadline = deadline,
                  .caller = caller,
                  .board = board_.get(),
                  .hosts = &hosts_,
                  .most_payload = payload.size()},
                 take);
    }
    /// A meeting in which each gives what is its own. Returns whether all got that.
    bool exchanges(std::size_t bytes = 0) {
      const auto given = [&](int rank) {
        return std::to_string(1000 * (sequence_ + 1) + static_cast<Number>(rank)) + std::string(bytes, 'x');
      };
      std::vector<std::string> expected;
      for (const int rank : members_) expected.push_back(given(rank));
      int right = 1;
      const auto take = [&](int rank, std::string_view payload) {
        right += payload == expected[static_cast<std::size_t>(rank)];
      };
      meet(3, expected[static_cast<std::size_t>(mesh_.rank())], in(20s), take, nullptr);
      return right == mesh_.size();
    }
    void leave() {
      mesh_.say_goodbye(group_, members_);
      mesh_.leave(group_, members_);
      mesh_.leave();
    }

   private:
    rendezvous::ControlMesh& mesh_;
    std::vector<int> members_;
    Number group_;
    std::unique_ptr<ThreadBoard> board_;
    Hosts hosts_;
    Number sequence_ = 0;
  };

  /// What is to go wrong on host `host`.
  Failing& failing(std::size_t host) { return failing_[host]; }
  std::vector<std::string> run(const std::function<void(int rank, Rank& hosts)>& body) {
    return on_mesh(ranks_, [&](HostMesh& mesh) { body(mesh->rank(), join(*mesh)); });
  }
  /// Lives as long as this does, which a mesh does not: it looks at boards.
  Rank& join(rendezvous::ControlMesh& mesh) {
    const std::lock_guard lock(mutex_);
    return *joined_.emplace_back(std::make_unique<Rank>(*this, mesh));
  }

 private:
  int ranks_, members_;
  Number group_;
  std::vector<std::unique_ptr<HostMemory>> memories_;
  std::vector<Failing> failing_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Rank>> joined_;
};
using RankOfHost = HostsOfThreads::Rank;

struct Layout {
  int ranks, members;
};
class HostMeetingsOf : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, HostMeetingsOf,
                         ::testing::Values(Layout{4, 2}, Layout{6, 2}, Layout{8, 4}, Layout{8, 2},
                                           Layout{6, 3}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + "by" +
                                  std::to_string(test.param.members);
                         });

TEST_P(HostMeetingsOf, TellAllToAll) {
  HostsOfThreads hosts(GetParam().ranks, GetParam().members);
  const auto errors = hosts.run([](int, RankOfHost& rank) {
    for (int i = 0; i < 200; ++i) EXPECT_TRUE(rank.exchanges());
    rank.leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Those are told by every rank itself.
TEST_P(HostMeetingsOf, TellWhatIsTooLargeToBePassedOn) {
  HostsOfThreads hosts(GetParam().ranks, GetParam().members);
  const auto errors = hosts.run([](int, RankOfHost& rank) {
    for (int i = 0; i < 40; ++i) EXPECT_TRUE(rank.exchanges(i % 3 == 0 ? 1000 : 0));
    rank.leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Some come late, by more or less than the time after which others tell them themselves.
TEST_P(HostMeetingsOf, TellAllToAllWhoeverIsLate) {
  HostsOfThreads hosts(GetParam().ranks, GetParam().members);
  const auto errors = hosts.run([](int own, RankOfHost& rank) {
    std::mt19937 random(static_cast<unsigned>(own));
    for (int i = 0; i < 60; ++i) {
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 25'000));
      EXPECT_TRUE(rank.exchanges());
    }
    rank.leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(HostMeetingsOf, NeedNoFirstRankThatPassesOn) {
  HostsOfThreads hosts(GetParam().ranks, GetParam().members);
  hosts.failing(1).passes_nothing_on = true;
  const auto errors = hosts.run([](int, RankOfHost& rank) {
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(rank.exchanges());
    rank.leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// One that has announced, and stands still then: the others ask it, and go on.
TEST(HostMeetings, GoOnWhereAFirstRankStandsStill) {
  HostsOfThreads hosts(4, 2);
  std::latch others_done(3);
  hosts.failing(1).before_bundle = [&] { others_done.wait(); };
  const auto errors = hosts.run([&](int own, RankOfHost& rank) {
    EXPECT_TRUE(rank.exchanges());
    if (own != 2) others_done.count_down();
    rank.leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// The first rank of the second host has not passed on what those of the first host told it before they left.
TEST(HostMeetings, EndThoughOthersHaveLeftAfterThem) {
  HostsOfThreads hosts(4, 2);
  std::latch first_host_gone(2);
  hosts.failing(1).passes_nothing_on = true;
  const auto errors = hosts.run([&](int own, RankOfHost& rank) {
    EXPECT_TRUE(rank.exchanges());
    rank.leave();
    if (own < 2) first_host_gone.count_down();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(HostMeetings, NameWhoLeftBeforeThem) {
  HostsOfThreads hosts(4, 2);
  std::vector<std::string> words(4);
  std::latch all_done(4);
  const auto errors = hosts.run([&](int own, RankOfHost& rank) {
    EXPECT_TRUE(rank.exchanges());
    try {
      own == 2 ? rank.leave() : rank.meet(4);
    } catch (const PeerLost& error) {
      words[static_cast<std::size_t>(own)] = error.what();
    }
    all_done.arrive_and_wait();  // who has ended would be lost to the others
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  for (const std::size_t rank : {0, 1, 3})
    EXPECT_THAT(words[rank], HasSubstr("rank 2 left the group before a collective of all"));
}

class HostMeetingsFailed : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(By, HostMeetingsFailed, ::testing::Values(0, 1, 2, 3));

TEST_P(HostMeetingsFailed, NameWhoDiffers) {
  const int other = GetParam();
  HostsOfThreads hosts(4, 2);
  const auto begin = steady_clock::now();
  const auto errors = hosts.run([&](int own, RankOfHost& rank) {
    EXPECT_TRUE(rank.exchanges());
    rank.meet(own == other ? 9 : 4);
  });
  std::vector<int> alike = {0, 1, 2, 3};
  std::erase(alike, other);
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("ranks do not call the same collective"),
                                 HasSubstr(rendezvous::ranks_text(alike) + ": op 4 in group 1, seq 2"),
                                 HasSubstr("rank " + std::to_string(other) + ": op 9 in group 1, seq 2"))));
  EXPECT_LT(steady_clock::now() - begin, 10s);
}

// A larger payload than can be passed on, of one rank.
TEST_P(HostMeetingsFailed, NameWhoDiffersInHowItTellsToo) {
  HostsOfThreads hosts(4, 2);
  const auto errors = hosts.run([&](int own, RankOfHost& rank) {
    EXPECT_TRUE(rank.exchanges());
    const bool is_other = own == GetParam();
    rank.meet(is_other ? 9 : 4, std::string(is_other ? 5000 : 4, 'x'));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("ranks do not call the same collective"),
                                 HasSubstr("rank " + std::to_string(GetParam()) + ": op 9 in group 1"))));
}

TEST_P(HostMeetingsFailed, NameWhoDoesNotCome) {
  const int absent = GetParam();
  HostsOfThreads hosts(4, 2);
  std::latch all_done(4);
  const auto errors = hosts.run([&](int own, RankOfHost& rank) {
    EXPECT_TRUE(rank.exchanges());
    if (own != absent) {
      EXPECT_THROW(rank.meet(4, {}, in(1s)), Timeout);
    }
    all_done.arrive_and_wait();
    if (own != absent) rank.meet(4);
  });
  const auto who = "rank " + std::to_string(absent);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == absent) continue;
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                AllOf(HasSubstr(who + " did not come to op 4 in group 1, seq 2 in time"),
                      HasSubstr(who + " is outside of collectives")));
  }
}

TEST_P(HostMeetingsFailed, NameWhoIsGone) {
  const int lost = GetParam();
  HostsOfThreads hosts(4, 2);
  const auto errors = hosts.run([&](int own, RankOfHost& rank) {
    EXPECT_TRUE(rank.exchanges());
    if (own != lost) rank.meet(4);
  });
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == lost) continue;
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)],
                HasSubstr("rank " + std::to_string(lost) + " is gone"));
  }
}

// Of two groups, in which ranks wait for each other.
TEST_P(HostMeetingsFailed, NameWhoWaitsInAnotherGroup) {
  const int elsewhere = GetParam();
  HostsOfThreads hosts(4, 2, 1), others(4, 2, 2);
  const auto begin = steady_clock::now();
  const auto errors = on_mesh(4, [&](HostMesh& mesh) {
    auto &one = hosts.join(*mesh), &two = others.join(*mesh);
    EXPECT_TRUE(one.exchanges());
    EXPECT_TRUE(two.exchanges());
    (mesh->rank() == elsewhere ? two : one).meet(4);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("ranks wait for each other in different collectives"),
                                 HasSubstr("rank " + std::to_string(elsewhere) + ": op 4 in group 2"))));
  EXPECT_LT(steady_clock::now() - begin, 10s);
}

TEST(HostMeetings, OfSeveralGroupsGoOnAtOnce) {
  HostsOfThreads one(4, 2, 1), two(4, 2, 2), three(4, 2, 3);
  const auto errors = on_mesh(4, [&](HostMesh& mesh) {
    std::vector<std::jthread> threads;
    for (auto* const hosts : {&one, &two, &three})
      threads.emplace_back([&rank = hosts->join(*mesh)] {
        for (int i = 0; i < 100; ++i) EXPECT_TRUE(rank.exchanges());
      });
    threads.clear();
    mesh->leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// What was told late, and twice, is not kept.
TEST(HostMeetings, KeepNothingOfGroupsThatAreOver) {
  HostsOfThreads hosts(4, 2);
  hosts.failing(1).passes_nothing_on = true;
  std::latch all_left(4);
  const auto errors = on_mesh(4, [&](HostMesh& mesh) {
    auto& rank = hosts.join(*mesh);
    const auto members = all_of(*mesh);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(rank.exchanges());
    mesh->say_goodbye(1, members);
    mesh->leave(1, members);
    all_left.arrive_and_wait();
    const auto end = steady_clock::now() + 5s;
    while (mesh->groups_kept() > 0 && steady_clock::now() < end) std::this_thread::sleep_for(5ms);
    EXPECT_EQ(mesh->groups_kept(), 0);
    mesh->leave();
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// A first rank has passed on what a rank that was late tells itself then, in this meeting and before the
// next.
TEST(HostMeetings, ForgetWhatComesAfterTheyHaveMet) {
  rendezvous::PeerLinks links(std::vector<UniqueFd>(4));
  rendezvous::Meetings meetings(1);
  rendezvous::HostMeetings by_hosts(1, links, meetings);
  HostMemory memory(2);
  const Failing nothing;
  ThreadBoard board(memory, 0, 1, nothing);
  const Hosts hosts{
      .board = &board, .here = {0, 1}, .elsewhere = {2, 3}, .first_ranks = {2}, .most_payload = 100};
  by_hosts.open(1, hosts);
  const std::vector<int> members = {0, 1, 2, 3};
  const rendezvous::Meeting first{
      .announcement = op(3, 1, 1), .members = members, .board = &board, .hosts = &hosts};
  by_hosts.show(first);
  EXPECT_THAT(by_hosts.to_be_told(first), ::testing::ElementsAre(2, 3));
  by_hosts.finish(first);

  const auto tell = [&](Number sequence) {
    by_hosts.receive(
        2, {.header = header_of(rendezvous::MessageKind::kAnnounce, "", op(3, 1, sequence)), .payload = {}});
    return meetings.inbox().find(1, 2, sequence) != nullptr;
  };
  EXPECT_FALSE(tell(1));
  EXPECT_TRUE(tell(2));
}

}  // namespace
}  // namespace lockstep
