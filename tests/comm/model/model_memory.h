// The protocols of src/comm/shared_memory over the model's memory, with a fault in them or without.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/collectives/slot_pipelines.h"
#include "comm/model/explorer.h"
#include "comm/model/replay.h"
#include "comm/shared_memory/board_protocol.h"
#include "comm/shared_memory/chunk_protocol.h"
#include "comm/shared_memory/flag_protocol.h"

namespace lockstep::model {

/// What a mutant does wrong.
enum class Fault {
  kNone,
  kNoFence,          ///< a flag is raised without a fence before the question who sleeps
  kPlainCount,       ///< sleepers are counted without a locked add
  kNoSecondLook,     ///< who has said that it will sleep does not look at the flag again
  kBlindSleep,       ///< the futex does not compare
  kNoSecondFlag,     ///< nobody waits until others have finished a chunk
  kNoWaitForSlots,   ///< a slot is taken without asking who still uses it
  kNoWaitForOthers,  ///< a slot is read without asking whether its rank has staged the chunk
  kFinishesEarly,    ///< the chunk after the one that is finished is said to be finished, too
  kNeverAsks,        ///< a late member is waited for, whatever has become of it
  kRelaysEarly       ///< the first member passes on before all have shown what they announce
};

/// What a step is.
enum class Grain {
  kEachAccess,   ///< each access to a flag and to a line of a slot
  kWaitsAtOnce,  ///< likewise, but a flag is waited for in one step: nobody sleeps
  kFlagsAlone    ///< likewise, and lines are read and written together with the access to a flag before
};

/// A word of the model's memory with the interface of std::atomic. One without a place is not looked at.
template <class T, Fault fault>
struct ModelWord {
  WordIndex index = kNoWord;

  T load(std::memory_order /*total store order has them all*/) const {
    return index == kNoWord ? T(0) : static_cast<T>(make({.kind = AccessKind::kLoad, .word = index}));
  }
  void store(T value, std::memory_order /*as above*/) {
    if (index != kNoWord)
      make({.kind = AccessKind::kStore, .word = index, .value = static_cast<Value>(value)});
  }
  // What was there before is not given, for nobody asks, and states would differ by it.
  void fetch_add(T value, std::memory_order order) {
    if (fault != Fault::kPlainCount) return add(static_cast<Value>(value));
    store(load(order) + value, order);
  }
  void fetch_sub(T value, std::memory_order /*as above*/) { add(-static_cast<Value>(value)); }

 private:
  static Value make(const Access& access) { return Replay::current().access(access); }
  void add(Value value) { make({.kind = AccessKind::kAdd, .word = index, .value = value}); }
};

/// The processor of a flag is not modelled: it only says how long to spin. Nor is a spin, which is a look.
template <Fault fault>
struct ModelMemory {
  template <class T>
  using Word = ModelWord<T, fault>;

  static void fence() {
    if (fault != Fault::kNoFence) Replay::current().access({.kind = AccessKind::kFence});
  }
  static int processor() { return 1; }
  template <class Look>
  static bool spin(const Look& /*again*/) {
    return false;
  }
  static void wait(Word<std::uint32_t>& word, std::uint32_t value) {
    if (fault == Fault::kBlindSleep) value = word.load(std::memory_order_relaxed);
    Replay::current().access({.kind = AccessKind::kWait, .word = word.index, .value = value});
  }
  static void wake(Word<std::uint32_t>& word) {
    Replay::current().access({.kind = AccessKind::kWake, .word = word.index});
  }
};

template <Fault fault, Grain grain>
struct ModelFlag : detail::FlagWords<ModelMemory<fault>> {};

template <Fault fault, Grain grain>
using Protocol = detail::FlagProtocol<ModelMemory<fault>>;

template <Fault fault, Grain grain>
void post(ModelFlag<fault, grain>& flag, std::uint64_t value) {
  Protocol<fault, grain>::post(flag, value);
}

template <Fault fault, Grain grain>
bool has_come_to(const ModelFlag<fault, grain>& flag, std::uint64_t value) {
  return Replay::current().summarize([&] { return Protocol<fault, grain>::has_come_to(flag, value); }) != 0;
}

template <Fault fault, Grain grain>
bool spin_until(const ModelFlag<fault, grain>& flag, std::uint64_t value) {
  if (grain == Grain::kEachAccess)
    return Replay::current().summarize([&] { return Protocol<fault, grain>::spin_until(flag, value); }) != 0;
  return Replay::current().access(
             {.kind = AccessKind::kAwait, .word = flag.value.index, .value = static_cast<Value>(value)}) != 0;
}

template <Fault fault, Grain grain>
bool sleep_until(ModelFlag<fault, grain>& flag, std::uint64_t value) {
  if (grain != Grain::kEachAccess) return has_come_to(flag, value);
  return Replay::current().summarize([&] {
    if (fault != Fault::kNoSecondLook) return Protocol<fault, grain>::sleep_until(flag, value);
    flag.sleepers.fetch_add(1, std::memory_order_seq_cst);
    ModelMemory<fault>::wait(flag.wakes, flag.wakes.load(std::memory_order_seq_cst));
    flag.sleepers.fetch_sub(1, std::memory_order_relaxed);
    return has_come_to(flag, value);
  }) != 0;
}

/// Thrown by who waits for a member that a death keeps from coming.
struct Left {};

/// How many of each a segment has. A line is one word of the model.
struct Layout {
  std::uint32_t slots = 4;
  std::uint32_t lines = 2;  ///< of a slot
  std::uint32_t announcements = 2;
};

/// Where the words of some ranks' segments are.
template <Fault fault, Grain grain>
class Places {
 public:
  using Flag = ModelFlag<fault, grain>;

  /// Adds them to `model`.
  Places(Layout layout, std::size_t ranks, Model& model) : layout_(layout) {
    add_slots(ranks, model.words);
    add_flags(ranks, model);
  }
  /// Other flags, and the same slots.
  Places(const Places& slots, Model& model)
      : layout_(slots.layout_),
        lines_(slots.lines_),
        announcements_(slots.announcements_),
        relay_(slots.relay_) {
    add_flags(slots.flags_.size(), model);
  }

  const Layout& layout() const { return layout_; }
  const std::vector<Flag>& flags(std::size_t rank) const { return flags_[rank]; }
  const Flag& relayed() const { return relayed_; }
  WordIndex relay() const { return relay_; }
  WordIndex line(std::size_t rank, std::uint64_t slot, std::size_t line) const {
    return lines_ + static_cast<WordIndex>((rank * layout_.slots + slot) * layout_.lines + line);
  }
  WordIndex announcement(std::size_t rank, std::uint64_t number) const {
    return announcements_ + static_cast<WordIndex>(rank * layout_.announcements + number);
  }

 private:
  void add_slots(std::size_t ranks, std::vector<std::string>& words) {
    lines_ = static_cast<WordIndex>(words.size());
    for (std::size_t i = 0; i < ranks * layout_.slots * layout_.lines; ++i)
      words.push_back("line " + std::to_string(i % layout_.lines) + " of slot " +
                      std::to_string(i / layout_.lines % layout_.slots) + " of rank " +
                      std::to_string(i / layout_.lines / layout_.slots));
    announcements_ = static_cast<WordIndex>(words.size());
    for (std::size_t i = 0; i < ranks * layout_.announcements; ++i)
      words.push_back("announcement " + std::to_string(i % layout_.announcements) + " of rank " +
                      std::to_string(i / layout_.announcements));
    relay_ = static_cast<WordIndex>(words.size());
    words.push_back("what is passed on");
  }

  void add_flags(std::size_t ranks, Model& model) {
    const auto add = [&](const std::string& name) {
      model.words.push_back(name);
      return static_cast<WordIndex>(model.words.size() - 1);
    };
    const auto add_flag = [&](Flag& flag, const std::string& of) {
      flag.value.index = add(of);
      if (grain != Grain::kEachAccess) return;
      flag.wakes.index = add("wakes of " + of);
      flag.sleepers.index = add("sleepers of " + of);
    };
    flags_.resize(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      for (const std::string name : {"announced", "staged", "finished"})
        add_flag(flags_[rank].emplace_back(), name + " of rank " + std::to_string(rank));
    add_flag(relayed_, "passed on");
  }

  Layout layout_;
  WordIndex lines_ = 0, announcements_ = 0, relay_ = 0;
  std::vector<std::vector<Flag>> flags_;  // by rank
  Flag relayed_;
};

}  // namespace lockstep::model
