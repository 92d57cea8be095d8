// A rank of the model: code that runs over memory whose every access is a step.
//
// The code is ordinary code, and what it does next depends on nothing but what its accesses have returned so
// far. So it needs no thread to be halted in: it is run from its beginning, is given again what it was given
// before, and is left by an exception at the first access whose result is not known yet. What accesses have
// returned is the state of the rank; states are numbered, and each is run into once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep::model {

using Value = std::uint32_t;
using WordIndex = std::uint32_t;

inline constexpr WordIndex kNoWord = ~WordIndex{0};  ///< of accesses to none

enum class AccessKind : std::uint8_t {
  kLoad,
  kStore,      ///< into the store buffer
  kAdd,        ///< locked
  kPeek,       ///< a load in one step with the access before
  kPoke,       ///< a store, likewise, past the store buffer
  kFence,      ///< waits until the store buffer is empty
  kWait,       ///< sleeps if the word has the value
  kWake,       ///< all who sleep at the word
  kAwait,      ///< waits until the word has come to the value. Returns 0 if it gave up: after a death it may
  kAwaitLong,  ///< never gives up
  kAsk,        ///< whether a rank is known to be dead
  kEnd,        ///< the rank is done
  kViolation   ///< the rank has found an error
};

struct Access {
  AccessKind kind;
  WordIndex word = kNoWord;
  Value value = 0;
};

/// What a check of a rank's own found. Thrown within a rank.
struct Violation {
  std::string text;
};

/// One run of a rank.
class Replay {
 public:
  /// The one that is under way.
  static Replay& current();

  /// Makes an access. Returns its result, or throws what run() catches.
  Value access(const Access& access);

  /// Runs `body`, a part whose result is all that the rank keeps of it: what its accesses returned is
  /// forgotten when it is done, so that ways that lead to the same result lead to the same state.
  template <class Body>
  Value summarize(const Body& body) {
    const Depth depth(*this);
    if (position_ < history_.size() && (history_[position_] & ~kLargest) == depth.mark())
      return history_[position_++] & kLargest;
    const auto begin = position_;
    const Value result = body();
    history_.resize(begin);
    history_.push_back(result | depth.mark());
    position_ = begin + 1;
    return result;
  }

  /// Runs `attempt` until it returns true; nothing is kept of the attempts.
  template <class Attempt>
  void repeat_until(const Attempt& attempt) {
    const auto begin = position_;
    summarize([&] {
      while (!attempt()) {
        history_.resize(begin);
        position_ = begin;
      }
      return 0;
    });
  }

  /// Runs `rank` with what its accesses have returned. Returns its next access; what is left of `history`
  /// when parts were forgotten is in there.
  static Access run(const std::function<void()>& rank, std::vector<Value>& history, std::string& violation);

 private:
  static constexpr Value kLargest = (Value{1} << 28U) - 1;  // of results; above, in summaries, is their depth

  // While it lives, the parts that are run are one deeper.
  class Depth {
   public:
    explicit Depth(Replay& replay) : depth_(replay.depth_) { ++depth_; }
    ~Depth() { --depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Value mark() const { return depth_ << 28U; }

   private:
    Value& depth_;
  };

  explicit Replay(std::vector<Value>& history) : history_(history) {}

  std::vector<Value>& history_;
  std::size_t position_ = 0;
  Value depth_ = 0;  // of parts in parts
};

/// A rank's states, which are found as they are asked for.
class Program {
 public:
  /// `body` may throw Violation.
  explicit Program(std::function<void()> body);

  std::uint32_t start() const { return 0; }
  /// The access that it makes next in state `state`.
  const Access& next(std::uint32_t state) const { return states_[state].next; }
  /// The state that follows when that returns `result`.
  std::uint32_t after(std::uint32_t state, Value result);
  /// Of a state whose access is kViolation.
  const std::string& violation(std::uint32_t state) const { return states_[state].violation; }

 private:
  struct State {
    std::vector<Value> history;
    Access next;
    std::string violation;
    std::vector<std::pair<Value, std::uint32_t>> followers = {};
  };
  struct Hash {
    std::size_t operator()(const std::vector<Value>& history) const;
  };

  std::uint32_t state_with(std::vector<Value> history);

  std::function<void()> body_;
  std::vector<State> states_;
  std::unordered_map<std::vector<Value>, std::uint32_t, Hash> numbers_;
};

}  // namespace lockstep::model
