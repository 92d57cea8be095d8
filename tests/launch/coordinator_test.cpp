// Who takes part in a job of several nodes: the state machine, with a clock that the test moves.
#include "launch/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class CoordinatorTest : public ::testing::Test {
 protected:
  using Node = Coordinator::Node;

  static RendezvousOptions elastic(int min, int max) {
    RendezvousOptions options{.min_nodes = min, .max_nodes = max, .is_static = false, .host = "head"};
    options.join_timeout = 100s;
    options.last_call_timeout = 10s;
    options.keep_alive_interval = 5s;
    return options;
  }
  static RendezvousOptions of_static(int nodes) {
    auto options = elastic(nodes, nodes);
    options.is_static = true;
    return options;
  }

  void make(const RendezvousOptions& options, int max_restarts) {
    options_ = options;
    coordinator_.emplace(options, request("host"), max_restarts,
                         [this](Node node, const HostMessage& message) { told_[node].push_back(message); });
  }

  JoinRequest request(const std::string& host, int node_rank = -1) const {
    return {.run_id = "job",
            .min_nodes = options_.min_nodes,
            .max_nodes = options_.max_nodes,
            .nprocs = 1,
            .node_rank = node_rank,
            .host = host,
            .pid = 7,
            .port = 1000};
  }

  void say(Node node, const NodeMessage& message) { coordinator_->on_message(node, message, "", now_); }
  void join(Node node, int node_rank = -1) {
    auto wanted = request("host" + std::to_string(node), node_rank);
    wanted.port += static_cast<int>(node);
    say(node, {.kind = NodeMessage::kJoin, .join = wanted});
  }
  void fail(Node node, Blame blame, const std::string& cause, int exit_code = 3) {
    say(node,
        {.kind = NodeMessage::kFailed, .failure = {.cause = cause, .blame = blame, .exit_code = exit_code}});
  }
  void pass(std::chrono::milliseconds time) {
    now_ += time;
    coordinator_->on_time(now_);
  }
  void all_alive() {
    for (const auto& [node, messages] : told_) say(node, {.kind = NodeMessage::kAlive});
  }

  // What a node was told last, without signs of life and what is for people.
  HostMessage last(Node node) {
    auto messages = told_[node];
    std::erase_if(messages, [](const HostMessage& each) {
      return each.kind == HostMessage::kAlive || each.kind == HostMessage::kNews;
    });
    return messages.empty() ? HostMessage{} : messages.back();
  }
  std::vector<std::string> news(Node node) {
    std::vector<std::string> texts;
    for (const auto& each : told_[node])
      if (each.kind == HostMessage::kNews) texts.push_back(each.text);
    return texts;
  }
  void join_from(Node node, int node_rank, const std::string& host, const std::string& boot_id) {
    auto wanted = request(host, node_rank);
    wanted.boot_id = boot_id;
    wanted.pid = 100 + static_cast<int>(node);
    say(node, {.kind = NodeMessage::kJoin, .join = wanted});
  }
  std::vector<Node> silent() const { return coordinator_->silent_nodes(now_); }
  std::vector<int> node_ranks(const std::vector<Node>& nodes) {
    std::vector<int> ranks;
    for (const auto node : nodes)
      ranks.push_back(last(node).kind == HostMessage::kRound ? last(node).round.node_rank : -1);
    return ranks;
  }

  RendezvousOptions options_;
  std::optional<Coordinator> coordinator_;
  std::map<Node, std::vector<HostMessage>> told_;
  Coordinator::Time now_{1000s};
};

TEST_F(CoordinatorTest, ARoundBeginsAtOnceWithAllNodes) {
  make(elastic(1, 2), 0);
  join(1);
  EXPECT_EQ(node_ranks({1}), (std::vector{-1}));
  join(2);
  EXPECT_EQ(node_ranks({1, 2}), (std::vector{0, 1}));
  EXPECT_EQ(last(2).round.num_nodes, 2);
  EXPECT_EQ(last(2).round.main_address, "head");
  EXPECT_EQ(last(2).round.main_port, 1001) << "of node 0";
}

TEST_F(CoordinatorTest, WithEnoughNodesItWaitsForTheLastCall) {
  make(elastic(1, 3), 0);
  join(1);
  pass(9s);
  join(2);
  EXPECT_EQ(node_ranks({1, 2}), (std::vector{-1, -1}));
  pass(999ms);
  EXPECT_EQ(node_ranks({1, 2}), (std::vector{-1, -1}));
  pass(1ms);
  EXPECT_EQ(node_ranks({1, 2}), (std::vector{0, 1}));
}

TEST_F(CoordinatorTest, TheFirstRoundMayWaitLongerForThoseToCome) {
  auto options = elastic(1, 3);
  options.first_call_timeout = 30s;
  make(options, 0);
  join(1);
  join(2);
  pass(29s);
  EXPECT_EQ(node_ranks({1, 2}), (std::vector{-1, -1}));
  pass(1s);
  EXPECT_EQ(node_ranks({1, 2}), (std::vector{0, 1}));
  coordinator_->on_closed(2, now_);
  join(1);
  pass(10s);
  EXPECT_EQ(last(1).round.num_nodes, 1) << "as ever after a loss";
}

TEST_F(CoordinatorTest, NodesKeepTheirNumbersAndNewOnesComeAfterThem) {
  make(elastic(1, 3), 0);
  join(5);
  join(4);
  pass(10s);
  EXPECT_EQ(node_ranks({4, 5}), (std::vector{0, 1})) << "by name at first";
  join(1);
  EXPECT_EQ(last(4).kind, HostMessage::kStop);
  EXPECT_THAT(last(4).text, HasSubstr("host1"));
  join(5);
  join(4);
  EXPECT_EQ(node_ranks({4, 5, 1}), (std::vector{0, 1, 2}));
  EXPECT_EQ(last(1).round.restarts, 0);
}

TEST_F(CoordinatorTest, AStaticJobHasFixedNumbers) {
  make(of_static(2), 0);
  join(1, 1);
  join(2, 0);
  EXPECT_EQ(node_ranks({1, 2}), (std::vector{1, 0}));
}

TEST_F(CoordinatorTest, AFailureRestartsAllAtOnce) {
  make(elastic(2, 4), 1);
  join(1);
  join(2);
  pass(10s);
  fail(2, Blame::kOwnError, "rank 1 broke");
  for (const Node node : {1, 2}) {
    EXPECT_EQ(last(node).kind, HostMessage::kStop);
    EXPECT_THAT(last(node).text,
                HasSubstr("rank 1 broke, on host host2; all ranks are started anew: restart 1 of 1"));
    EXPECT_EQ(last(node).is_own, node == 2);
  }
  join(1);
  EXPECT_EQ(last(1).kind, HostMessage::kStop);
  join(2);
  EXPECT_EQ(node_ranks({1, 2}), (std::vector{0, 1})) << "nobody else is expected";
  EXPECT_EQ(last(1).round.restarts, 1);
  fail(1, Blame::kSignal, "rank 0 was killed", 137);
  EXPECT_EQ(last(2).kind, HostMessage::kEnd);
  EXPECT_EQ(last(2).exit_code, 137);
}

TEST_F(CoordinatorTest, ABetterCauseGoesBeforeAnEcho) {
  make(of_static(2), 0);
  join(1, 0);
  join(2, 1);
  fail(1, Blame::kEcho, "rank 0 lost a peer");
  pass(50ms);
  EXPECT_EQ(last(1).kind, HostMessage::kRound);
  fail(2, Blame::kOwnError, "rank 1 broke", 4);
  EXPECT_THAT(last(1).text, HasSubstr("rank 1 broke"));
  EXPECT_EQ(last(1).exit_code, 4);
}

TEST_F(CoordinatorTest, AnEchoAloneIsTheCauseAfterAMoment) {
  make(of_static(2), 0);
  join(1, 0);
  join(2, 1);
  fail(1, Blame::kEcho, "rank 0 lost a peer");
  pass(100ms);
  EXPECT_THAT(last(2).text, HasSubstr("rank 0 lost a peer"));
}

TEST_F(CoordinatorTest, EchoesOfALossAreNoFailure) {
  make(elastic(1, 2), 0);
  join(1);
  join(2);
  fail(1, Blame::kEcho, "rank 0 lost a peer");
  coordinator_->on_closed(2, now_);
  EXPECT_EQ(last(1).kind, HostMessage::kStop);
  EXPECT_THAT(last(1).text, HasSubstr("node 1 (host host2, launcher's pid 7) is lost"));
  join(1);
  pass(100ms);
  EXPECT_EQ(last(1).kind, HostMessage::kStop) << "the lost one may come back";
  pass(10s);
  EXPECT_EQ(last(1).kind, HostMessage::kRound);
  EXPECT_EQ(last(1).round.num_nodes, 1);
  EXPECT_EQ(last(1).round.restarts, 0);
}

TEST_F(CoordinatorTest, ALostNodeThatComesBackIsNotWaitedForAnyLonger) {
  make(elastic(1, 2), 0);
  join(1);
  join(2);
  coordinator_->on_closed(2, now_);
  join(1);
  join(3);
  EXPECT_EQ(node_ranks({1, 3}), (std::vector{0, 1}));
}

TEST_F(CoordinatorTest, WithTooFewSurvivorsItEndsAndNamesTheAbsent) {
  make(elastic(2, 3), 5);
  join(1);
  join(2);
  pass(10s);
  coordinator_->on_closed(2, now_);
  join(1);
  pass(99s);
  EXPECT_EQ(last(1).kind, HostMessage::kStop);
  pass(1s);
  EXPECT_EQ(last(1).kind, HostMessage::kEnd);
  EXPECT_EQ(last(1).exit_code, 1);
  EXPECT_THAT(last(1).text, HasSubstr("1 node of at least 2 joined within 100 s: node 0 (host host1"));
  EXPECT_THAT(last(1).text, HasSubstr("absent: node 1 (host host2"));
}

TEST_F(CoordinatorTest, AStaticJobWithoutRestartsEndsWithALoss) {
  make(of_static(2), 0);
  join(1, 0);
  join(2, 1);
  coordinator_->on_closed(2, now_);
  EXPECT_EQ(last(1).kind, HostMessage::kEnd);
}

TEST_F(CoordinatorTest, BeforeTheFirstRoundNodesMayComeAndGo) {
  make(of_static(3), 0);
  join(1, 0);
  join(2, 1);
  coordinator_->on_closed(2, now_);
  join(3, 1);
  join(4, 2);
  EXPECT_EQ(node_ranks({1, 3, 4}), (std::vector{0, 1, 2}));
}

TEST_F(CoordinatorTest, TheJobIsOverWhenAllAreDone) {
  make(of_static(2), 0);
  join(1, 0);
  join(2, 1);
  say(1, {.kind = NodeMessage::kDone});
  EXPECT_EQ(last(1).kind, HostMessage::kRound);
  say(2, {.kind = NodeMessage::kDone});
  EXPECT_EQ(last(1).kind, HostMessage::kEnd);
  EXPECT_EQ(last(1).exit_code, 0);
  EXPECT_TRUE(coordinator_->has_members());
  coordinator_->on_closed(1, now_);
  coordinator_->on_closed(2, now_);
  EXPECT_FALSE(coordinator_->has_members());
}

TEST_F(CoordinatorTest, ANodeThatIsDoneCanBeLost) {
  make(of_static(2), 0);
  join(1, 0);
  join(2, 1);
  say(2, {.kind = NodeMessage::kDone});
  coordinator_->on_closed(2, now_);
  EXPECT_EQ(last(1).kind, HostMessage::kRound);
  say(1, {.kind = NodeMessage::kDone});
  EXPECT_EQ(last(1).exit_code, 0);
  EXPECT_EQ(last(1).kind, HostMessage::kEnd);
}

TEST_F(CoordinatorTest, ANodeThatIsStoppedEndsAJobThatNeedsIt) {
  make(elastic(2, 3), 5);
  join(1);
  join(2);
  pass(10s);
  say(2, {.kind = NodeMessage::kLeave, .signal = 15});
  EXPECT_EQ(last(1).kind, HostMessage::kEnd);
  EXPECT_EQ(last(1).exit_code, 143);
  EXPECT_THAT(last(1).text, HasSubstr("was stopped by SIGTERM"));
}

TEST_F(CoordinatorTest, NodesBeyondTheLastPlaceWait) {
  make(elastic(1, 2), 0);
  join(1);
  join(2);
  join(3);
  EXPECT_EQ(last(1).kind, HostMessage::kRound);
  EXPECT_EQ(node_ranks({3}), (std::vector{-1}));
  say(1, {.kind = NodeMessage::kDone});
  say(2, {.kind = NodeMessage::kDone});
  EXPECT_EQ(last(3).kind, HostMessage::kEnd) << "also for it";
}

TEST_F(CoordinatorTest, SilentNodesAreNamed) {
  make(elastic(2, 2), 0);
  join(1);
  join(2);
  now_ += 14s;
  say(1, {.kind = NodeMessage::kAlive});
  EXPECT_THAT(coordinator_->silent_nodes(now_), ::testing::IsEmpty());
  now_ += 1s;
  EXPECT_THAT(coordinator_->silent_nodes(now_), ::testing::ElementsAre(2));
}

TEST_F(CoordinatorTest, NobodyIsBlamedForTheTimeThatTheHostWasStopped) {
  make(of_static(2), 0);
  auto host = request("host0", 0);
  host.hosts = true;
  say(1, {.kind = NodeMessage::kJoin, .join = host});
  join(2, 1);
  now_ += 1h;
  EXPECT_THAT(coordinator_->silent_nodes(now_), ::testing::ElementsAre(2)) << "the host is this process";
  coordinator_->excuse_silence(now_);
  EXPECT_THAT(coordinator_->silent_nodes(now_), ::testing::IsEmpty());
}

TEST_F(CoordinatorTest, NodesMayHaveDifferentNumbersOfRanks) {
  make(of_static(3), 0);
  for (const int node : {2, 1, 0}) {
    auto joining = request("host" + std::to_string(node), node);
    joining.nprocs = node + 2;
    say(static_cast<Coordinator::Node>(node) + 1, {.kind = NodeMessage::kJoin, .join = joining});
  }
  EXPECT_EQ(last(1).round.first_rank, 0);
  EXPECT_EQ(last(2).round.first_rank, 2);
  EXPECT_EQ(last(3).round.first_rank, 5);
  for (const int node : {1, 2, 3}) EXPECT_EQ(last(static_cast<Coordinator::Node>(node)).round.world_size, 9);
}

TEST_F(CoordinatorTest, RanksAreNumberedWithinTheirRoles) {
  make(of_static(3), 0);
  for (const int node : {2, 1, 0}) {
    auto joining = request("host" + std::to_string(node), node);
    joining.nprocs = node + 2;
    joining.role = node == 1 ? "learner" : "actor";
    say(static_cast<Coordinator::Node>(node) + 1, {.kind = NodeMessage::kJoin, .join = joining});
  }
  const auto place = [&](Coordinator::Node node) {
    return std::pair(last(node).round.first_role_rank, last(node).round.role_world_size);
  };
  EXPECT_EQ(place(1), std::pair(0, 6));
  EXPECT_EQ(place(2), std::pair(0, 3));
  EXPECT_EQ(place(3), std::pair(2, 6));
}

TEST_F(CoordinatorTest, RefusesWhoDiffers) {
  make(of_static(2), 0);
  join(1, 0);
  join(2, 0);
  EXPECT_EQ(last(1).kind, HostMessage::kAsk);
  say(1, {.kind = NodeMessage::kHere});
  EXPECT_EQ(last(2).kind, HostMessage::kRefused);
  EXPECT_THAT(last(2).text, HasSubstr("--node-rank 0 is taken by node 0 (host host1"));
  EXPECT_THAT(last(2).text, HasSubstr("asked for by node 0 (host host2"));
  auto other = request("other", 1);
  other.max_nodes = 5;
  say(4, {.kind = NodeMessage::kJoin, .join = other});
  EXPECT_THAT(last(4).text, HasSubstr("--nnodes is 2:5 there and 2:2"));
  join(2, 1);
  EXPECT_EQ(node_ranks({1, 2}), (std::vector{0, 1})) << "refusals leave nothing behind";
}

TEST_F(CoordinatorTest, ANodeThatComesBackToItsMachineTakesThePlaceOfOneThatDoesNotAnswer) {
  make(of_static(2), 1);
  join_from(1, 0, "a", "x");
  join_from(2, 1, "b", "y");
  join_from(3, 1, "b", "y");
  EXPECT_EQ(last(2).kind, HostMessage::kAsk);
  EXPECT_THAT(silent(), ::testing::IsEmpty());
  now_ += 2s;
  EXPECT_THAT(silent(), ::testing::ElementsAre(2)) << "long before a sign of life is missed";
  coordinator_->on_closed(2, now_);
  join_from(1, 0, "a", "x");
  EXPECT_EQ(node_ranks({1, 3}), (std::vector{0, 1}));
  EXPECT_EQ(last(3).round.number, 1);
}

TEST_F(CoordinatorTest, AMachineThatWasStartedAnewHasNoOlderNode) {
  make(of_static(2), 1);
  join_from(1, 0, "a", "x");
  join_from(2, 1, "b", "y");
  join_from(3, 1, "b", "z");
  EXPECT_THAT(silent(), ::testing::ElementsAre(2));
}

TEST_F(CoordinatorTest, OfTwoMachinesTheSilentOneGetsItsUsualTime) {
  make(of_static(2), 1);
  join_from(1, 0, "a", "x");
  join_from(2, 1, "b", "y");
  join_from(3, 1, "c", "y");
  now_ += 14s;
  say(1, {.kind = NodeMessage::kAlive});
  EXPECT_THAT(silent(), ::testing::IsEmpty());
  say(3, {.kind = NodeMessage::kAlive});
  EXPECT_EQ(told_[3].size(), 1U) << "the host is heard of while it asks";
  now_ += 1s;
  EXPECT_THAT(silent(), ::testing::ElementsAre(2));
}

TEST_F(CoordinatorTest, ANodeThatAsksForTheHostsNumberIsRefusedAtOnce) {
  make(of_static(2), 1);
  auto host = request("a", 0);
  host.hosts = true;
  say(1, {.kind = NodeMessage::kJoin, .join = host});
  join_from(2, 0, "a", "another");
  EXPECT_EQ(last(2).kind, HostMessage::kRefused);
}

TEST_F(CoordinatorTest, TheTimeToJoinBeginsWhenTheLastNodeHasStopped) {
  make(of_static(2), 1);
  join(1, 0);
  join(2, 1);
  fail(2, Blame::kOwnError, "rank 1 broke");
  join(1, 0);
  pass(150s);
  EXPECT_EQ(last(1).kind, HostMessage::kStop) << "node 1 may take its time to stop";
  coordinator_->on_closed(2, now_);
  pass(99s);
  EXPECT_EQ(last(1).kind, HostMessage::kStop);
  pass(1s);
  EXPECT_EQ(last(1).kind, HostMessage::kEnd);
  EXPECT_THAT(last(1).text, HasSubstr("absent: node 1 (host host2"));
}

TEST_F(CoordinatorTest, NoRoundBeginsWithoutANodeThatIsStillStopping) {
  make(elastic(1, 2), 1);
  join(1);
  join(2);
  fail(2, Blame::kOwnError, "rank 1 broke");
  join(1);
  pass(150s);
  EXPECT_EQ(last(1).kind, HostMessage::kStop);
  join(2);
  EXPECT_EQ(node_ranks({1, 2}), (std::vector{0, 1}));
}

TEST_F(CoordinatorTest, PeopleAreToldWhatIsWaitedFor) {
  make(of_static(3), 1);
  join(1, 0);
  pass(4999ms);
  EXPECT_THAT(news(1), ::testing::IsEmpty());
  pass(1ms);
  EXPECT_THAT(news(1), ::testing::ElementsAre("waiting at head:29400 for node 1 of 3, node 2 of 3"));
  join(3, 2);
  pass(59s);
  EXPECT_EQ(news(1).size(), 1U);
  pass(1s);
  EXPECT_THAT(news(3), ::testing::ElementsAre("waiting at head:29400 for node 1 of 3"));
  join(2, 1);
  fail(2, Blame::kOwnError, "rank 1 broke");
  join(1, 0);
  join(3, 2);
  pass(5s);
  EXPECT_THAT(news(1).back(), HasSubstr("for node 1 (host host2, launcher's pid 7), which stops its ranks"));
}

TEST_F(CoordinatorTest, OfAnElasticJobTheNumberThatIsMissingIsTold) {
  make(elastic(3, 4), 1);
  join(1);
  pass(5s);
  EXPECT_THAT(news(1), ::testing::ElementsAre("waiting at head:29400 for 2 more nodes, of at least 3"));
  join(2);
  join(3);
  pass(9s);
  EXPECT_EQ(news(1).size(), 1U);
}

TEST_F(CoordinatorTest, MessagesSurviveTheirText) {
  const NodeMessage failed{.kind = NodeMessage::kFailed,
                           .failure = {.cause = "\xff bytes", .blame = Blame::kSignal, .exit_code = 137}};
  const auto parsed = parse_node_message(to_text(failed));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->failure.blame, Blame::kSignal);
  EXPECT_EQ(parsed->failure.exit_code, 137);
  for (const auto* wrong :
       {"", "{}", "[]", "{\"kind\":1}", "{\"kind\":\"j\"}", "{\"kind\":\"j\",\"join\":{}}"})
    EXPECT_FALSE(parse_node_message(wrong)) << wrong;
}

}  // namespace
}  // namespace lockstep::launch
