#include "comm/model/explorer.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <unordered_set>

namespace lockstep::model {
namespace {

constexpr std::size_t kMostRanks = 3;
constexpr std::size_t kMostWords = 96;
constexpr std::size_t kMostStores = 12;  // of one rank, in its buffer

struct Store {
  WordIndex word;
  Value value;
};

struct RankState {
  std::uint32_t state = 0;
  WordIndex asleep_at = kNoWord;
  std::uint32_t stores = 0;
  std::array<Store, kMostStores> buffer = {};
};

struct World {
  std::array<Value, kMostWords> memory = {};
  std::array<RankState, kMostRanks> ranks = {};
  int dead = -1;
};

struct Step {
  enum Kind : std::uint8_t { kFlush, kAccess, kGiveUp, kDie } kind;
  std::uint8_t rank;
};

class Mixer {
 public:
  void add(std::uint64_t value) {
    hash_ = (hash_ ^ value) * 0xff51afd7ed558ccd;
    hash_ ^= hash_ >> 32U;
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0x9e3779b97f4a7c15;
};

class Explorer {
 public:
  explicit Explorer(const Model& model) : model_(model) {
    if (model.words.size() > kMostWords || model.ranks.size() > kMostRanks)
      throw std::length_error("the model is too large");
    for (const auto& rank : model.ranks) programs_.emplace_back(rank);
  }

  Result run() {
    World first;
    settle(first);
    visit(first);
    while (!path_.empty() && result_.violation.empty()) {
      auto& [world, steps, next] = path_.back();
      if (next == steps.size()) {
        path_.pop_back();
        continue;
      }
      auto follower = world;
      take(follower, steps[next++]);
      settle(follower);
      visit(follower);
    }
    result_.states = seen_.size();
    return std::move(result_);
  }

 private:
  struct Visit {
    World world;
    std::vector<Step> steps;
    std::size_t next = 0;
  };

  std::size_t size() const { return programs_.size(); }
  const Access& next_of(const World& world, std::size_t rank) const {
    return programs_[rank].next(world.ranks[rank].state);
  }
  bool is_dead(const World& world, std::size_t rank) const { return world.dead == static_cast<int>(rank); }

  bool may_die(int rank) const { return std::ranges::find(model_.may_die, rank) != model_.may_die.end(); }

  void visit(const World& world) {
    if (!seen_.insert(hash_of(world)).second) return;
    path_.push_back({world, steps_from(world)});
    for (std::size_t rank = 0; rank < size(); ++rank) {
      if (next_of(world, rank).kind == AccessKind::kViolation)
        return violate("rank " + std::to_string(rank) + ": " +
                       programs_[rank].violation(world.ranks[rank].state));
    }
    if (path_.back().steps.empty()) require_end(world);
    if (seen_.size() > model_.most_states) violate("more states than may be explored");
  }

  void require_end(const World& world) {
    for (std::size_t rank = 0; rank < size(); ++rank) {
      if (is_dead(world, rank) || next_of(world, rank).kind == AccessKind::kEnd) continue;
      return violate("rank " + std::to_string(rank) + " waits for ever: " + text_of(next_of(world, rank)));
    }
  }

  void violate(const std::string& what) {
    result_.violation = what;
    for (std::size_t i = 0; i + 1 < path_.size(); ++i) {
      const auto& visit = path_[i];
      const auto step = visit.steps[visit.next - 1];
      result_.trace += "rank " + std::to_string(step.rank) + " " + text_of(visit.world, step) + "\n";
    }
  }

  std::string text_of(const Access& access) const {
    static constexpr const char* kNames[] = {"loads",   "stores",    "loads", "stores", "fences",
                                             "adds to", "sleeps at", "wakes", "awaits", "awaits",
                                             "asks",    "ends",      "fails"};
    const auto word = access.word == kNoWord ? std::string() : " " + model_.words[access.word];
    return kNames[static_cast<int>(access.kind)] + word + " " + std::to_string(access.value);
  }

  std::string text_of(const World& world, Step step) const {
    const auto& rank = world.ranks[step.rank];
    switch (step.kind) {
      case Step::kFlush:
        return "sees arrive its store of " + model_.words[rank.buffer[0].word] + " = " +
               std::to_string(rank.buffer[0].value);
      case Step::kAccess:
        return text_of(next_of(world, step.rank));
      case Step::kGiveUp:
        return "waits no longer";
      case Step::kDie:
        return "dies";
    }
    return {};
  }

  // What a rank finds: its own last store while that is in the buffer.
  static Value loaded(const World& world, const RankState& rank, WordIndex word) {
    for (auto i = rank.stores; i > 0; --i)
      if (rank.buffer[i - 1].word == word) return rank.buffer[i - 1].value;
    return world.memory[word];
  }

  // Takes the steps that no other rank notices, and that no step of another one changes.
  void settle(World& world) {
    for (std::size_t rank = 0; rank < size(); ++rank)
      while (!is_dead(world, rank) && take_unnoticed(world, rank)) continue;
  }

  bool take_unnoticed(World& world, std::size_t number) {
    auto& rank = world.ranks[number];
    if (rank.asleep_at != kNoWord) return false;
    const auto access = programs_[number].next(rank.state);
    if (access.kind == AccessKind::kStore) {
      if (rank.stores == kMostStores) throw std::length_error("a store buffer of the model is too small");
      rank.buffer[rank.stores++] = {access.word, access.value};
    } else if (access.kind == AccessKind::kPoke) {
      world.memory[access.word] = access.value;
    } else if (access.kind != AccessKind::kPeek && (access.kind != AccessKind::kFence || rank.stores > 0)) {
      return false;
    }
    go_on(world, number, access.kind == AccessKind::kPeek ? world.memory[access.word] : 0);
    return true;
  }

  std::vector<Step> steps_from(const World& world) const {
    std::vector<Step> steps;
    for (std::uint8_t number = 0; number < size(); ++number) {
      const auto& rank = world.ranks[number];
      const auto& access = next_of(world, number);
      if (rank.stores > 0) steps.push_back({Step::kFlush, number});
      if (is_dead(world, number) || access.kind == AccessKind::kEnd) continue;
      const bool is_asleep = rank.asleep_at != kNoWord;
      const bool awaits = access.kind == AccessKind::kAwait || access.kind == AccessKind::kAwaitLong;
      const bool has_come = !awaits || loaded(world, rank, access.word) >= access.value;
      const bool is_held_back =
          (access.kind == AccessKind::kFence || access.kind == AccessKind::kAdd) && rank.stores > 0;
      if (!is_asleep && has_come && !is_held_back) steps.push_back({Step::kAccess, number});
      if (world.dead >= 0 && (is_asleep || access.kind == AccessKind::kAwait))
        steps.push_back({Step::kGiveUp, number});
      if (world.dead < 0 && may_die(number)) steps.push_back({Step::kDie, number});
    }
    return steps;
  }

  void take(World& world, Step step) {
    auto& rank = world.ranks[step.rank];
    switch (step.kind) {
      case Step::kFlush:
        world.memory[rank.buffer[0].word] = rank.buffer[0].value;
        std::shift_left(rank.buffer.begin(), rank.buffer.begin() + rank.stores, 1);
        rank.buffer[--rank.stores] = {};
        return;
      case Step::kAccess:
        return take_access(world, step.rank);
      case Step::kGiveUp:
        rank.asleep_at = kNoWord;
        return go_on(world, step.rank, 0);
      case Step::kDie:
        world.dead = step.rank;
        return;
    }
  }

  void take_access(World& world, std::size_t number) {
    auto& rank = world.ranks[number];
    const auto access = next_of(world, number);
    Value result = 0;
    if (access.kind == AccessKind::kLoad) result = loaded(world, rank, access.word);
    if (access.kind == AccessKind::kAdd) world.memory[access.word] += access.value;
    if (access.kind == AccessKind::kAwait || access.kind == AccessKind::kAwaitLong) result = 1;
    if (access.kind == AccessKind::kAsk) result = world.dead >= 0 ? 1 : 0;
    if (access.kind == AccessKind::kWait && world.memory[access.word] == access.value) {
      rank.asleep_at = access.word;
      return;
    }
    if (access.kind == AccessKind::kWake) wake_at(world, access.word);
    go_on(world, number, result);
  }

  void wake_at(World& world, WordIndex word) {
    for (std::size_t number = 0; number < size(); ++number) {
      auto& rank = world.ranks[number];
      if (rank.asleep_at != word || is_dead(world, number)) continue;
      rank.asleep_at = kNoWord;
      go_on(world, number, 0);
    }
  }

  void go_on(World& world, std::size_t number, Value result) {
    auto& rank = world.ranks[number];
    rank.state = programs_[number].after(rank.state, result);
  }

  std::uint64_t hash_of(const World& world) const {
    Mixer mixer;
    for (std::size_t i = 0; i < model_.words.size(); ++i) mixer.add(world.memory[i]);
    for (std::size_t i = 0; i < size(); ++i) {
      const auto& rank = world.ranks[i];
      mixer.add(std::uint64_t{rank.state} << 32U | rank.asleep_at);
      mixer.add(rank.stores);
      for (std::size_t each = 0; each < rank.stores; ++each)
        mixer.add(std::uint64_t{rank.buffer[each].word} << 32U | rank.buffer[each].value);
    }
    mixer.add(static_cast<std::uint64_t>(world.dead + 1));
    return mixer.hash();
  }

  const Model& model_;
  std::vector<Program> programs_;
  std::unordered_set<std::uint64_t> seen_;
  std::vector<Visit> path_;
  Result result_;
};

}  // namespace

Result explore(const Model& model) { return Explorer(model).run(); }

}  // namespace lockstep::model
