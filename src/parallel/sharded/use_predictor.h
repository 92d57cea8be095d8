// Which unit comes next: what followed the last time that the same two units were used one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

namespace lockstep::detail {

/// In what a unit is used: the order differs between them.
enum class UsePhase : std::uint8_t { kEvaluation, kForward, kBackward };

/// Remembers sequences of units, in any mixture of passes. Ranks that use the same units in the same order
/// predict alike.
class UsePredictor {
 public:
  /// `unit` is used now, after others; returns what is expected next.
  std::optional<std::size_t> next_after(std::size_t unit, UsePhase phase);

  /// What comes now does not follow on what was.
  void break_off() { last_.reset(); }

 private:
  // Two units that follow on each other, and where.
  using Context = std::uint64_t;

  std::optional<std::size_t> unit_;  // the last one
  std::optional<Context> last_;      // that it was used in
  std::unordered_map<Context, std::size_t> next_;
};

}  // namespace lockstep::detail
