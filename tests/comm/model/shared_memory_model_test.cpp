// The protocols of memory that ranks share, in all interleavings of two and three ranks: right as they are,
// and wrong with any of the faults that they are there to prevent.
//
// How far it goes: two ranks with every step of their flags, that is with sleeping and waking, and three with
// flags that are waited for in one step; two or three collectives in a row, of as many chunks as take every
// slot again; a death at any step. Store buffers have total store order; memory that is weaker is left to
// ThreadSanitizer.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "comm/model/explorer.h"
#include "comm/model/model_ranks.h"

namespace lockstep::model {
namespace {

constexpr auto kEachAccess = Grain::kEachAccess;
constexpr auto kFlagsAlone = Grain::kFlagsAlone;
constexpr auto kWaitsAtOnce = Grain::kWaitsAtOnce;

struct Group {
  int ranks = 2;
  std::vector<Call> calls = {};
  std::uint32_t lines = 2;          // of a slot
  std::uint32_t announcements = 2;  // slots of these
  bool one_may_die = false;
};

Result report(const std::string& name, const Model& model) {
  const auto result = explore(model);
  std::cout << "  " << name << ": " << result.states << " states"
            << (result.violation.empty() ? "" : ", then " + result.violation) << "\n";
  return result;
}

template <Fault fault, Grain grain, std::uint64_t slots = 4>
Result run(const std::string& name, const Group& group) {
  Model model;
  const Layout layout{.slots = slots, .lines = group.lines, .announcements = group.announcements};
  const Places<fault, grain> places(layout, static_cast<std::size_t>(group.ranks), model);
  std::vector<int> all;
  for (int rank = 0; rank < group.ranks; ++rank) all.push_back(rank);
  for (const int rank : all)
    model.ranks.push_back([&, rank] {
      try {
        Member<fault, grain, slots>(places, all, rank).perform(group.calls);
      } catch (const Left&) {
        if (!group.one_may_die) throw Violation{"leaves though nobody has died"};
      }
    });
  if (group.one_may_die) model.may_die = all;
  return report(name, model);
}

void expect_right(const Result& result) { EXPECT_EQ(result.violation, "") << result.trace; }
void expect_found(const Result& result, const char* violation) {
  EXPECT_NE(result.violation.find(violation), std::string::npos) << result.violation << "\n" << result.trace;
}

constexpr auto kHang = "waits for ever";
constexpr auto kWrong = "a wrong";

// One rank raises a flag, and two wait for each value.
template <Fault fault>
Result run_flag(const std::string& name) {
  Model model;
  const Places<fault, kEachAccess> places({.slots = 0}, 1, model);
  auto flag = places.flags(0)[0];
  model.ranks.push_back([flag]() mutable {
    for (std::uint64_t value = 1; value <= 2; ++value) post(flag, value);
  });
  for (int waiter = 0; waiter < 2; ++waiter)
    model.ranks.push_back([flag]() mutable {
      for (std::uint64_t value = 1; value <= 2; ++value)
        Replay::current().repeat_until([&] { return spin_until(flag, value) || sleep_until(flag, value); });
    });
  return report(name, model);
}

TEST(SharedMemoryModel, AFlagWakesAllWhoSleep) { expect_right(run_flag<Fault::kNone>("flag")); }

TEST(SharedMemoryModel, FaultsInAFlagAreFound) {
  expect_found(run_flag<Fault::kNoFence>("flag, raised without a fence"), kHang);
  expect_found(run_flag<Fault::kPlainCount>("flag, sleepers counted without a locked add"), kHang);
  expect_found(run_flag<Fault::kNoSecondLook>("flag, not looked at again before a sleep"), kHang);
  expect_found(run_flag<Fault::kBlindSleep>("flag, futex that does not compare"), kHang);
}

TEST(SharedMemoryModel, MeetingsNeedTwoSlots) {
  const std::vector<Call> calls(4, {CallKind::kMeet});
  expect_right(run<Fault::kNone, kEachAccess>("4 meetings, 2 ranks", {.calls = calls}));
  expect_right(run<Fault::kNone, kWaitsAtOnce>("4 meetings, 3 ranks", {.ranks = 3, .calls = calls}));
  expect_found(run<Fault::kNone, kWaitsAtOnce>("meetings in 1 slot", {.calls = calls, .announcements = 1}),
               kWrong);
  expect_found(run<Fault::kNoFence, kEachAccess>("meetings without a fence", {.calls = calls}), kHang);
}

// What the first member of a host passes on lies in one place, for who reads it has read all before it.
TEST(SharedMemoryModel, WhatIsPassedOnNeedsOnePlace) {
  const std::vector<Call> calls(4, {CallKind::kMeetByHosts});
  const std::vector<Call> mixed = {{CallKind::kMeetByHosts},
                                   {CallKind::kMeetOtherwise},
                                   {CallKind::kMeetByHosts},
                                   {CallKind::kMeet},
                                   {CallKind::kMeetByHosts}};
  expect_right(run<Fault::kNone, kEachAccess>("3 meetings by hosts, 2 ranks",
                                              {.calls = std::vector<Call>(3, {CallKind::kMeetByHosts})}));
  for (const auto& [name, all] : {std::pair("meetings by hosts", calls), {"mixed meetings", mixed}}) {
    expect_right(run<Fault::kNone, kWaitsAtOnce>(name + std::string(", 2 ranks"), {.calls = all}));
    expect_right(
        run<Fault::kNone, kWaitsAtOnce>(name + std::string(", 3 ranks"), {.ranks = 3, .calls = all}));
  }
  expect_right(run<Fault::kNone, kWaitsAtOnce>("a death in meetings by hosts, 3 ranks",
                                               {.ranks = 3, .calls = mixed, .one_may_die = true}));
  expect_found(run<Fault::kRelaysEarly, kWaitsAtOnce>("passed on before all are there", {.calls = calls}),
               kWrong);
  expect_found(run<Fault::kRelaysEarly, kWaitsAtOnce>("passed on before all are there, 3 ranks",
                                                      {.ranks = 3, .calls = calls}),
               kWrong);
  expect_found(run<Fault::kNoFence, kEachAccess>("passed on without a fence", {.calls = calls}), kHang);
}

// Seven chunks: every slot is taken again.
const std::vector<Call> kSums = {{CallKind::kSum, 8}, {CallKind::kSum, 2}, {CallKind::kSum, 4}};
// Six chunks of three ranks.
const std::vector<Call> kSumsOf3 = {{CallKind::kSum, 12}, {CallKind::kSum, 3}, {CallKind::kSum, 3}};

TEST(SharedMemoryModel, SumsAreRight) {
  expect_right(run<Fault::kNone, kEachAccess>(
      "2 meetings and sums, 2 ranks",
      {.calls = {{CallKind::kMeet}, {CallKind::kSum, 2}, {CallKind::kMeet}, {CallKind::kSum, 2}}}));
  expect_right(run<Fault::kNone, kWaitsAtOnce>("3 sums, 2 ranks", {.calls = kSums}));
  expect_right(run<Fault::kNone, kWaitsAtOnce, 3>("3 sums, 2 ranks, 3 slots", {.calls = kSums}));
  expect_right(run<Fault::kNone, kWaitsAtOnce>("sum of 2 chunks, 3 ranks",
                                               {.ranks = 3, .calls = {{CallKind::kSum, 6}}, .lines = 3}));
  expect_right(
      run<Fault::kNone, kFlagsAlone>("3 sums, 3 ranks", {.ranks = 3, .calls = kSumsOf3, .lines = 3}));
  expect_right(run<Fault::kNone, kFlagsAlone, 3>("3 sums, 3 ranks, 3 slots",
                                                 {.ranks = 3, .calls = kSumsOf3, .lines = 3}));
}

// A chunk is staged two chunks before its sums are taken, so that it needs three slots.
TEST(SharedMemoryModel, FaultsInSumsAreFound) {
  expect_found(run<Fault::kNone, kWaitsAtOnce, 2>("sums in 2 slots", {.calls = kSums}), kWrong);
  expect_found(run<Fault::kNone, kFlagsAlone, 2>("sums in 2 slots, 3 ranks",
                                                 {.ranks = 3, .calls = kSumsOf3, .lines = 3}),
               kWrong);
  expect_found(run<Fault::kNone, kWaitsAtOnce, 1>("sums in 1 slot", {.calls = kSums}), kHang);
  expect_found(
      run<Fault::kNoSecondFlag, kWaitsAtOnce>("sums without the flag of finished chunks", {.calls = kSums}),
      kWrong);
  expect_found(run<Fault::kNoSecondFlag, kFlagsAlone>("sums without the flag of finished chunks, 3 ranks",
                                                      {.ranks = 3, .calls = kSumsOf3, .lines = 3}),
               kWrong);
  expect_found(run<Fault::kNoFence, kEachAccess>("sums without a fence", {.calls = kSums}), kHang);
}

TEST(SharedMemoryModel, OtherCollectivesAreRight) {
  const std::vector<Call> reduces = {
      {CallKind::kReduce, 6}, {CallKind::kReduceByRoot, 2}, {CallKind::kReduce, 4}};
  const std::vector<Call> parts = {{CallKind::kSumParts, 4}, {CallKind::kSumParts, 2}};
  const std::vector<Call> copies = {
      {CallKind::kGather, 8}, {CallKind::kBroadcast, 4}, {CallKind::kGather, 2}};
  const std::vector<Call> exchanges = {{CallKind::kExchange, 4}, {CallKind::kExchange, 2}};
  const std::vector<Call> mixed = {
      {CallKind::kBroadcast, 6}, {CallKind::kReduce, 4}, {CallKind::kSumParts, 1}};
  for (const auto& [name, calls, lines] : {std::tuple("reduces", reduces, 2U),
                                           {"sums of parts", parts, 2U},
                                           {"copies", copies, 2U},
                                           {"exchanges", exchanges, 3U},
                                           {"mixed", mixed, 2U}})
    expect_right(
        run<Fault::kNone, kWaitsAtOnce>(name + std::string(", 2 ranks"), {.calls = calls, .lines = lines}));
  for (const auto& [name, calls, lines] : {std::tuple("reduces", reduces, 2U),
                                           {"sums of parts", parts, 3U},
                                           {"copies", copies, 1U},
                                           {"exchanges", exchanges, 4U},
                                           {"mixed", mixed, 3U}})
    expect_right(run<Fault::kNone, kFlagsAlone>(name + std::string(", 3 ranks"),
                                                {.ranks = 3, .calls = calls, .lines = lines}));
}

TEST(SharedMemoryModel, FaultsInOtherCollectivesAreFound) {
  const std::vector<Call> gathers = {{CallKind::kGather, 8}, {CallKind::kGather, 4}};
  const std::vector<Call> broadcasts = {{CallKind::kBroadcast, 8}, {CallKind::kBroadcast, 4}};
  const std::vector<Call> exchanges = {{CallKind::kExchange, 6}, {CallKind::kExchange, 6}};
  expect_right(run<Fault::kNone, kWaitsAtOnce, 2>("gathers in 2 slots", {.calls = gathers}));
  expect_found(run<Fault::kNone, kWaitsAtOnce, 1>("gathers in 1 slot", {.calls = gathers}), kHang);
  expect_found(
      run<Fault::kNoWaitForSlots, kWaitsAtOnce>("broadcasts that await no slot", {.calls = broadcasts}),
      kWrong);
  // Where all give and take, they keep each other in step, so that one slot less is needed to see it.
  expect_found(
      run<Fault::kNoWaitForSlots, kWaitsAtOnce, 3>("gathers that await no slot of 3", {.calls = gathers}),
      kWrong);
  expect_found(run<Fault::kNoWaitForSlots, kWaitsAtOnce, 3>("exchanges that await no slot of 3",
                                                            {.calls = exchanges, .lines = 3}),
               kWrong);
}

// What ranks of a host do in a sum of several hosts, before and after what passes between these.
TEST(SharedMemoryModel, RangesAreSummedAndGathered) {
  const std::vector<Call> sums = {{CallKind::kSumRanges, 4}, {CallKind::kSumRanges, 2}};
  const std::vector<Call> gathers = {{CallKind::kGatherRanges, 8}, {CallKind::kGatherRanges, 2}};
  const std::vector<Call> both = {
      {CallKind::kSumRanges, 2}, {CallKind::kGatherRanges, 2}, {CallKind::kSumRanges, 1}};
  const std::vector<Call> mixed = {
      {CallKind::kSum, 4}, {CallKind::kSumRanges, 2}, {CallKind::kGatherRanges, 1}, {CallKind::kSum, 2}};
  for (const auto& [name, calls] : {std::tuple("sums of ranges", sums),
                                    {"gathered ranges", gathers},
                                    {"both", both},
                                    {"both among sums", mixed}}) {
    expect_right(run<Fault::kNone, kWaitsAtOnce>(name + std::string(", 2 ranks"), {.calls = calls}));
    expect_right(run<Fault::kNone, kFlagsAlone>(name + std::string(", 3 ranks"),
                                                {.ranks = 3, .calls = calls, .lines = 3}));
  }
  expect_right(run<Fault::kNone, kEachAccess>(
      "a meeting and both, 2 ranks",
      {.calls = {{CallKind::kMeet}, {CallKind::kSumRanges, 2}, {CallKind::kGatherRanges, 2}}}));
}

// Members whose range is at its end stage and finish the other's chunks all the same, which take every slot
// again.
TEST(SharedMemoryModel, RangesMayBeMuchShorterThanOthers) {
  expect_right(run<Fault::kNone, kWaitsAtOnce>("sums of uneven ranges, 2 ranks",
                                               {.calls = {{CallKind::kSumRanges, 10}}}));
  expect_right(run<Fault::kNone, kWaitsAtOnce>("uneven gathered ranges, 2 ranks",
                                               {.calls = {{CallKind::kGatherRanges, 10}}, .lines = 1}));
  expect_right(run<Fault::kNone, kFlagsAlone>(
      "sums of uneven ranges, 3 ranks", {.ranks = 3, .calls = {{CallKind::kSumRanges, 8}}, .lines = 3}));
  expect_right(run<Fault::kNone, kFlagsAlone>(
      "uneven gathered ranges, 3 ranks", {.ranks = 3, .calls = {{CallKind::kGatherRanges, 8}}, .lines = 1}));
}

TEST(SharedMemoryModel, WhoAwaitsADeadRankInRangesLeaves) {
  expect_right(run<Fault::kNone, kWaitsAtOnce>(
      "a death in ranges, 2 ranks",
      {.calls = {{CallKind::kMeet}, {CallKind::kSumRanges, 3}, {CallKind::kGatherRanges, 2}},
       .one_may_die = true}));
  expect_right(run<Fault::kNone, kFlagsAlone>(
      "a death in ranges, 3 ranks", {.ranks = 3,
                                     .calls = {{CallKind::kSumRanges, 2}, {CallKind::kGatherRanges, 2}},
                                     .lines = 3,
                                     .one_may_die = true}));
}

// Two slots suffice. Where all give and take, they keep each other so far in step that it takes fewer slots
// than there are to see that one is taken too early.
template <Fault fault, Grain grain, std::uint64_t slots = 4>
void expect_found_in_ranges(const char* fault_text, const Group& of_lines, const char* violation) {
  for (const auto kind : {CallKind::kSumRanges, CallKind::kGatherRanges}) {
    auto group = of_lines;
    group.calls = {{kind, 8}, {kind, 4}};
    const auto* what = kind == CallKind::kSumRanges ? "sums of ranges" : "gathered ranges";
    expect_found(
        run<fault, grain, slots>(
            std::string(what) + ", " + fault_text + ", " + std::to_string(group.ranks) + " ranks", group),
        violation);
  }
}

TEST(SharedMemoryModel, FaultsInRangesAreFound) {
  const Group two, three{.ranks = 3, .lines = 3};
  expect_right(run<Fault::kNone, kWaitsAtOnce, 2>(
      "ranges in 2 slots", {.calls = {{CallKind::kSumRanges, 4}, {CallKind::kGatherRanges, 4}}}));
  expect_found_in_ranges<Fault::kNone, kWaitsAtOnce, 1>("1 slot", two, kHang);
  expect_found_in_ranges<Fault::kNoWaitForSlots, kWaitsAtOnce, 3>("no slot awaited", two, kWrong);
  expect_found_in_ranges<Fault::kNoWaitForSlots, kFlagsAlone, 3>("no slot awaited", three, kWrong);
  expect_found_in_ranges<Fault::kNoWaitForOthers, kWaitsAtOnce>("no staging awaited", two, kWrong);
  expect_found_in_ranges<Fault::kNoWaitForOthers, kFlagsAlone>("no staging awaited", three, kWrong);
  expect_found_in_ranges<Fault::kFinishesEarly, kWaitsAtOnce, 2>("finished too early", two, kWrong);
  expect_found_in_ranges<Fault::kFinishesEarly, kFlagsAlone, 2>("finished too early", three, kWrong);
  expect_found_in_ranges<Fault::kNoFence, kEachAccess>("no fence", two, kHang);
}

TEST(SharedMemoryModel, WhoAwaitsADeadRankLeaves) {
  const std::vector<Call> calls = {{CallKind::kMeet}, {CallKind::kSum, 4}, {CallKind::kMeet}};
  const std::vector<Call> copies = {{CallKind::kMeet}, {CallKind::kGather, 4}, {CallKind::kExchange, 1}};
  expect_right(run<Fault::kNone, kEachAccess>(
      "a death in a meeting and a sum, 2 ranks",
      {.calls = {{CallKind::kMeet}, {CallKind::kSum, 2}}, .one_may_die = true}));
  expect_right(
      run<Fault::kNone, kWaitsAtOnce>("a death in a sum, 2 ranks", {.calls = calls, .one_may_die = true}));
  expect_right(run<Fault::kNone, kWaitsAtOnce>("a death in copies, 2 ranks",
                                               {.calls = copies, .lines = 3, .one_may_die = true}));
  expect_right(run<Fault::kNone, kFlagsAlone>(
      "a death in a sum, 3 ranks",
      {.ranks = 3, .calls = {{CallKind::kMeet}, {CallKind::kSum, 6}}, .lines = 3, .one_may_die = true}));
  expect_found(run<Fault::kNeverAsks, kWaitsAtOnce>("a death that nobody asks about",
                                                    {.calls = calls, .one_may_die = true}),
               kHang);
}

// Ranks 1 and 2 sum on by themselves, whether rank 0 has died or not, in slots of their own or those of
// before.
Result run_survivors(const std::string& name, bool reuses_slots) {
  using Places = Places<Fault::kNone, kWaitsAtOnce>;
  using Member = Member<Fault::kNone, kWaitsAtOnce, 1>;
  Model model;
  const Layout layout{.slots = 1, .lines = 3};
  const Places first(layout, 3, model);
  const auto second = reuses_slots ? Places(first, model) : Places(layout, 3, model);
  for (int rank = 0; rank < 3; ++rank)
    model.ranks.push_back([&, rank] {
      try {
        Member(first, {0, 1, 2}, rank).perform({{CallKind::kSum, 3}});
      } catch (const Left&) {
      }
      constexpr bool kWaitsLong = true;
      if (rank > 0) Member(second, {1, 2}, rank - 1, kWaitsLong).perform({{CallKind::kSum, 3}});
    });
  model.may_die = {0};
  return report(name, model);
}

TEST(SharedMemoryModel, SlotsOfAFailedGroupAreNotUsedAgain) {
  expect_right(run_survivors("survivors in slots of their own", false));
  expect_found(run_survivors("survivors in slots of the failed group", true), kWrong);
}

}  // namespace
}  // namespace lockstep::model
