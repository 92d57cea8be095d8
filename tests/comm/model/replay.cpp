#include "comm/model/replay.h"

namespace lockstep::model {
namespace {

Replay* current_replay = nullptr;

// Leaves a rank at the access that it makes next.
struct Halt {
  Access access;
};

}  // namespace

Replay& Replay::current() { return *current_replay; }

Value Replay::access(const Access& access) {
  if (position_ == history_.size()) throw Halt{access};
  return history_[position_++];
}

Access Replay::run(const std::function<void()>& rank, std::vector<Value>& history, std::string& violation) {
  Replay replay(history);
  current_replay = &replay;
  try {
    rank();
  } catch (const Halt& halt) {
    return halt.access;
  } catch (const Violation& found) {
    violation = found.text;
    return {.kind = AccessKind::kViolation};
  }
  return {.kind = AccessKind::kEnd};
}

Program::Program(std::function<void()> body) : body_(std::move(body)) { state_with({}); }

std::uint32_t Program::after(std::uint32_t state, Value result) {
  for (const auto& [value, follower] : states_[state].followers)
    if (value == result) return follower;
  auto history = states_[state].history;
  history.push_back(result);
  const auto follower = state_with(std::move(history));
  states_[state].followers.emplace_back(result, follower);
  return follower;
}

std::uint32_t Program::state_with(std::vector<Value> history) {
  std::string violation;
  const auto next = Replay::run(body_, history, violation);
  const auto [known, is_new] = numbers_.try_emplace(history, static_cast<std::uint32_t>(states_.size()));
  if (is_new) states_.push_back({std::move(history), next, std::move(violation)});
  return known->second;
}

std::size_t Program::Hash::operator()(const std::vector<Value>& history) const {
  std::size_t hash = history.size();
  for (const auto value : history) hash = (hash ^ value) * 0x9e3779b97f4a7c15 + (hash >> 29U);
  return hash;
}

}  // namespace lockstep::model
