#include <lockstep/base/rank_status.h>

#include <algorithm>
#include <cstddef>

namespace lockstep {
namespace {

RankStatus private_slot;
RankStatus* current_slot = &private_slot;
std::atomic<void (*)(std::uint64_t)> current_probe = nullptr;

// Threads may enter collectives of several groups at once: the stored name may then mix both names.
template <std::size_t N>
void store_name(char (&to)[N], std::string_view from) {
  const auto length = std::min(from.size(), N - 1);
  for (std::size_t i = 0; i <= length; ++i) {
    std::atomic_ref(to[i]).store(i < length ? from[i] : '\0', std::memory_order_relaxed);
  }
}

// Another thread may store a name meanwhile.
template <std::size_t N>
std::string load_name(const char (&from)[N]) {
  std::string name;
  for (const auto& stored : from) {
    const char letter = std::atomic_ref(const_cast<char&>(stored)).load(std::memory_order_relaxed);
    if (letter == '\0') break;
    name += letter;
  }
  return name;
}

template <std::size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  const auto length = std::min(from.size(), N - 1);
  std::copy_n(from.data(), length, to);
  to[length] = '\0';
}

}  // namespace

RankStatus& rank_status() { return *current_slot; }

void use_rank_status(RankStatus& slot) { current_slot = &slot; }

std::uint64_t enter_collective(std::string_view name) {
  auto& slot = rank_status();
  store_name(slot.collective, name);
  slot.in_collective.fetch_add(1, std::memory_order_relaxed);
  const auto sequence = slot.sequence.fetch_add(1, std::memory_order_relaxed) + 1;
  if (auto* probe = current_probe.load(std::memory_order_relaxed)) probe(sequence);
  return sequence;
}

void leave_collective() { rank_status().in_collective.fetch_sub(1, std::memory_order_relaxed); }

JoinNote::JoinNote() : slot_(rank_status()) {
  slot_.in_join.fetch_add(1);
  slot_.joins.fetch_add(1);
}

JoinNote::~JoinNote() { slot_.in_join.fetch_sub(1); }

void on_enter_collective(void (*probe)(std::uint64_t sequence)) { current_probe = probe; }

namespace {

const char* words_for(RankActivity activity) {
  switch (activity) {
    case RankActivity::kUnknown:
      break;
    case RankActivity::kData:
      return "loading data";
    case RankActivity::kStep:
      return "training_step";
    case RankActivity::kBackward:
      return "backward";
    case RankActivity::kOptimizer:
      return "the optimizer's step";
    case RankActivity::kEvaluation:
      return "an evaluation step";
    case RankActivity::kCheckpoint:
      return "saving a checkpoint";
  }
  return nullptr;
}

// ", in backward of step 12".
std::string activity_text(const RankStatus& status) {
  const auto* const words = words_for(status.activity.load(std::memory_order_relaxed));
  if (words == nullptr) return "";
  return std::string(", in ") + words + " of step " + std::to_string(status.optimizer_step.load());
}

}  // namespace

std::string whereabouts(const RankStatus& status) {
  const auto sequence = status.sequence.load();
  if (sequence == 0) return "before its first collective" + activity_text(status);
  const auto call = load_name(status.collective) + " seq " + std::to_string(sequence);
  return status.in_collective.load() != 0 ? "in " + call : "after " + call + activity_text(status);
}

bool give_notice(std::string_view text) {
  auto& slot = rank_status();
  if (&slot == &private_slot) return false;
  copy_text(slot.notice, text);
  slot.notices.fetch_add(1, std::memory_order_release);
  return true;
}

void note_memory(std::int64_t before_training, std::int64_t parameters, std::int64_t gradients,
                 std::int64_t optimizer, std::string_view advice) {
  auto& memory = rank_status().memory;
  memory.parameters = parameters;
  memory.gradients = gradients;
  memory.optimizer = optimizer;
  copy_text(memory.advice, advice);
  memory.before_training = before_training;
}

void set_outcome(RankOutcome outcome, std::string_view error) {
  auto& slot = rank_status();
  copy_text(slot.error, error);
  slot.outcome.store(outcome, std::memory_order_release);
}

}  // namespace lockstep
