// Ranks of the model that carry out collectives, by the code of src/comm over the model's memory, and check
// their results.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "comm/collectives/slot_pipelines.h"
#include "comm/model/model_memory.h"
#include "comm/shared_memory/board_protocol.h"
#include "comm/shared_memory/chunk_protocol.h"

namespace lockstep::model {

enum class CallKind {
  kMeet,
  kMeetByHosts,    ///< the first member passes something on
  kMeetOtherwise,  ///< likewise, but the others have come by it before
  kSum,
  kReduce,
  kReduceByRoot,
  kSumParts,
  kSumRanges,
  kGather,
  kGatherRanges,
  kBroadcast,
  kExchange
};

/// A collective of tensors of some lines, or parts of so many for each member. Of ranges the first member's
/// has so many, the second one's half of them, the third one's a third.
struct Call {
  CallKind kind;
  std::uint32_t lines = 0;
};

/// A line of a tensor, which has one value.
struct alignas(detail::pipelines::kLine) Line {
  Value value = 0;
};
using Tensor = std::vector<Line>;

inline std::byte* bytes_of(Tensor& tensor) { return reinterpret_cast<std::byte*>(tensor.data()); }

/// What member `member` gives in line `line` of call number `call`: so that no two sums of some are alike.
inline Value given(int member, std::size_t call, std::size_t line) {
  return static_cast<Value>(1 + 16 * call + line) << (8U * static_cast<unsigned>(member));
}

/// GroupSegments of the model: its slots have addresses, at which nothing lies.
template <Fault fault, Grain grain, std::uint64_t slots>
class ModelSegments : public detail::ChunkProtocol<ModelSegments<fault, grain, slots>> {
 public:
  static constexpr std::uint64_t kSlots = slots;
  using Flag = ModelFlag<fault, grain>;
  using Base = detail::ChunkProtocol<ModelSegments>;

  /// Of the group whose members are `ranks`, of which this one is number `member`.
  ModelSegments(const Places<fault, grain>& places, std::vector<int> ranks, int member)
      : Base(static_cast<int>(ranks.size())), places_(places), ranks_(std::move(ranks)), member_(member) {
    for (const int rank : ranks_) flags_.push_back(places.flags(static_cast<std::size_t>(rank)));
    relayed_ = places.relayed();
  }

  int rank() const { return member_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  Flag& announced(int member) const { return flags_[static_cast<std::size_t>(member)][0]; }
  Flag& relayed() const { return relayed_; }
  WordIndex relay() const { return places_.relay(); }
  Flag& staged(int member) const { return flags_[static_cast<std::size_t>(member)][1]; }
  Flag& finished(int member) const { return flags_[static_cast<std::size_t>(member)][2]; }

  std::byte* slot(int member, std::uint64_t chunk) const {
    return kNowhere + places_.line(rank_of(member), chunk % kSlots, 0) * detail::pipelines::kLine;
  }
  std::size_t slot_bytes() const { return places_.layout().lines * detail::pipelines::kLine; }
  WordIndex announcement(int member, std::uint64_t number) const {
    return places_.announcement(rank_of(member), number % places_.layout().announcements);
  }

  void put(std::byte* slot, const std::byte* from, std::size_t bytes) const {
    for (std::size_t done = 0; done < bytes; done += detail::pipelines::kLine) {
      Value value = 0;
      std::memcpy(&value, from + done, sizeof value);
      store(slot + done, value);
    }
  }
  void get(std::byte* to, const std::byte* slot, std::size_t bytes) const {
    for (std::size_t done = 0; done < bytes; done += detail::pipelines::kLine) {
      const auto value = load(slot + done);
      std::memcpy(to + done, &value, sizeof value);
    }
  }

  void take(std::byte* to, std::byte* slot, std::size_t bytes) const {
    for (std::size_t done = 0; done < bytes; done += detail::pipelines::kLine) {
      get(to + done, slot + done, detail::pipelines::kLine);
      store(slot + done, kTaken);
    }
  }

  /// Sums rows as pipelines::sum() asks for it.
  void add_up(const std::vector<std::byte*>& rows, std::size_t bytes, std::byte* output,
              bool is_for_all) const {
    for (std::size_t done = 0; done < bytes; done += detail::pipelines::kLine) {
      Value sum = 0;
      for (auto* row : rows) sum += load(row + done);
      store(output + done, sum);
      if (!is_for_all) continue;
      for (auto* row : rows)
        if (row != output) store(row + done, sum);
    }
  }

  template <class AwaitLate>
  static void await(Flag& flag, std::uint64_t value, int member, const AwaitLate& await_late) {
    Replay::current().summarize([&] {
      Base::await(flag, value, member, await_late);
      return 0;
    });
  }
  template <class AwaitLate>
  void await_slot(std::uint64_t chunk, const AwaitLate& await_late) {
    if (fault != Fault::kNoWaitForSlots) Base::await_slot(chunk, await_late);
  }
  template <class AwaitLate>
  void await_staged(int member, std::uint64_t chunk, const AwaitLate& await_late) {
    if (fault != Fault::kNoWaitForOthers) Base::await_staged(member, chunk, await_late);
  }
  // A chunk whose slot is still read is said to be finished.
  void post_finished(std::uint64_t chunk) {
    Base::post_finished(chunk + (fault == Fault::kFinishesEarly ? 1 : 0));
  }
  template <class AwaitLate>
  void await_finished(int member, std::uint64_t chunk, const AwaitLate& await_late) {
    if (fault == Fault::kNoSecondFlag) return;
    // There a flag is asked again, for ranks would differ by what else they know.
    if (grain == Grain::kFlagsAlone) return await(finished(member), chunk, member, await_late);
    Base::await_finished(member, chunk, await_late);
  }

 private:
  static constexpr std::size_t kMostWords = 96;
  static constexpr Value kTaken = 1U << 27U;  // what nobody gives
  alignas(detail::pipelines::kLine) static inline std::byte kNowhere[kMostWords * detail::pipelines::kLine];

  std::size_t rank_of(int member) const {
    return static_cast<std::size_t>(ranks_[static_cast<std::size_t>(member)]);
  }
  static bool is_in_slot(const std::byte* line) {
    return line >= kNowhere && line < kNowhere + sizeof kNowhere;
  }
  static WordIndex word_at(const std::byte* line) {
    return static_cast<WordIndex>((line - kNowhere) / static_cast<std::ptrdiff_t>(detail::pipelines::kLine));
  }
  static void store(std::byte* line, Value value) {
    if (!is_in_slot(line)) return std::memcpy(line, &value, sizeof value), void();
    constexpr auto kKind = grain == Grain::kFlagsAlone ? AccessKind::kPoke : AccessKind::kStore;
    Replay::current().access({.kind = kKind, .word = word_at(line), .value = value});
  }
  static Value load(const std::byte* line) {
    constexpr auto kKind = grain == Grain::kFlagsAlone ? AccessKind::kPeek : AccessKind::kLoad;
    if (is_in_slot(line)) return Replay::current().access({.kind = kKind, .word = word_at(line)});
    Value value = 0;
    std::memcpy(&value, line, sizeof value);
    return value;
  }

  const Places<fault, grain>& places_;
  std::vector<int> ranks_;
  mutable std::vector<std::vector<Flag>> flags_;
  mutable Flag relayed_;
  int member_;
};

/// One member of a group.
template <Fault fault, Grain grain, std::uint64_t slots>
class Member {
 public:
  /// Where nobody may die, or `waits_long`, a late member is waited for without asking what became of it.
  Member(const Places<fault, grain>& places, std::vector<int> ranks, int member, bool waits_long = false)
      : segments_(places, std::move(ranks), member), board_(segments_), waits_long_(waits_long) {}

  /// Carries them out and checks the results. @throws Violation, Left
  void perform(const std::vector<Call>& calls) {
    for (const auto& call : calls) perform(call, number_++);
  }

 private:
  using Segments = ModelSegments<fault, grain, slots>;
  using Flag = typename Segments::Flag;

  void perform(const Call& call, std::size_t number) {
    switch (call.kind) {
      case CallKind::kMeet:
        return meet(number);
      case CallKind::kMeetByHosts:
      case CallKind::kMeetOtherwise:
        return meet_by_hosts(call, number);
      case CallKind::kSum:
      case CallKind::kReduce:
      case CallKind::kReduceByRoot:
        return sum(call, number);
      case CallKind::kSumParts:
        return sum_parts(call, number);
      case CallKind::kSumRanges:
        return sum_ranges(call, number);
      case CallKind::kGather:
        return gather(call, number);
      case CallKind::kGatherRanges:
        return gather_ranges(call, number);
      case CallKind::kBroadcast:
        return broadcast(call, number);
      case CallKind::kExchange:
        return exchange(call, number);
    }
  }

  // As ControlMesh::meet() does at a board.
  void meet(std::size_t number) {
    show(number);
    await([this] { return board_.await_all(); });
    compare(number);
  }

  // As ControlMesh::meet_by_hosts() does, where others look at what the first member passes on.
  void meet_by_hosts(const Call& call, std::size_t number) {
    show(number);
    const auto relayed = given(0, number, 1);
    if (rank() == 0) {
      if (fault != Fault::kRelaysEarly) await([this] { return board_.await_all(); });
      board_.relay([&](WordIndex place) { store(place, relayed); });
    } else if (call.kind == CallKind::kMeetByHosts) {
      await([this] { return board_.await_relay(); });
      require(load(segments_.relay()) == relayed, number, "relay");
    }
    await([this] { return board_.await_all(); });
    compare(number);
  }

  void show(std::size_t number) {
    board_.show([&](WordIndex place) { store(place, given(rank(), number, 0)); });
  }
  template <class Arrive>
  static void await(const Arrive& arrive) {
    Replay::current().repeat_until([&] {
      const bool is_there = arrive();
      if (!is_there) ask();
      return is_there;
    });
  }
  void compare(std::size_t number) {
    for (int member = 0; member < size(); ++member)
      if (member != rank())
        require(load(board_.place(member)) == given(member, number, 0), number, "announcement");
  }
  static void store(WordIndex place, Value value) {
    Replay::current().access({.kind = AccessKind::kStore, .word = place, .value = value});
  }
  static Value load(WordIndex place) {
    return Replay::current().access({.kind = AccessKind::kLoad, .word = place});
  }

  void sum(const Call& call, std::size_t number) {
    auto tensor = own(call.lines, number);
    detail::pipelines::Pieces pieces;
    pieces.add(bytes_of(tensor), call.lines * sizeof(Line));
    detail::pipelines::Summand summand{.pieces = pieces};
    if (call.kind != CallKind::kSum) summand.root = 0;
    summand.root_sums_alone = call.kind == CallKind::kReduceByRoot;
    detail::pipelines::sum(segments_, summand, adder(), late());
    for (std::size_t line = 0; line < call.lines; ++line)
      require(tensor[line].value == (summand.root.value_or(rank()) == rank() ? sum_of_all(number, line)
                                                                             : given(rank(), number, line)),
              number, "sum");
  }

  void sum_parts(const Call& call, std::size_t number) {
    auto from = own(call.lines * static_cast<std::size_t>(size()), number);
    Tensor to(call.lines);
    detail::pipelines::sum_parts(segments_, bytes_of(to), bytes_of(from), call.lines * sizeof(Line), adder(),
                                 late());
    for (std::size_t line = 0; line < call.lines; ++line)
      require(to[line].value == sum_of_all(number, static_cast<std::size_t>(rank()) * call.lines + line),
              number, "sum");
  }

  // As all_reduce() of several hosts does within one, in place.
  void sum_ranges(const Call& call, std::size_t number) {
    auto tensor = own(call.lines * static_cast<std::size_t>(size()), number);
    auto* const sums = bytes_of(tensor) + begin_of(call, rank()) * sizeof(Line);
    const auto add_up = [&](const auto& rows, std::size_t begin, std::size_t bytes) {
      segments_.add_up(rows, bytes, sums + begin, false);
    };
    detail::pipelines::sum_ranges(segments_, ranges_of(call, tensor), add_up, late());
    for (int member = 0; member < size(); ++member)
      for (auto line = begin_of(call, member); line < begin_of(call, member + 1); ++line)
        require(
            tensor[line].value == (member == rank() ? sum_of_all(number, line) : given(rank(), number, line)),
            number, "sum");
  }

  void gather(const Call& call, std::size_t number) {
    auto from = own(call.lines, number);
    Tensor to(call.lines * static_cast<std::size_t>(size()));
    detail::pipelines::gather(segments_, bytes_of(to), bytes_of(from), call.lines * sizeof(Line), late());
    for (int member = 0; member < size(); ++member)
      for (std::size_t line = 0; line < call.lines && member != rank(); ++line)
        require(to[static_cast<std::size_t>(member) * call.lines + line].value == given(member, number, line),
                number, "line");
  }

  void gather_ranges(const Call& call, std::size_t number) {
    auto tensor = own(call.lines * static_cast<std::size_t>(size()), number);
    detail::pipelines::gather_ranges(segments_, ranges_of(call, tensor), late());
    for (int member = 0; member < size(); ++member)
      for (auto line = begin_of(call, member); line < begin_of(call, member + 1); ++line)
        require(tensor[line].value == given(member, number, line), number, "line");
  }

  void broadcast(const Call& call, std::size_t number) {
    auto tensor = own(call.lines, number);
    const int root = size() - 1;
    detail::pipelines::broadcast(segments_, bytes_of(tensor), call.lines * sizeof(Line), root, late());
    for (std::size_t line = 0; line < call.lines; ++line)
      require(tensor[line].value == given(root, number, line), number, "line");
  }

  // The first member gives all that there is, and others a line.
  void exchange(const Call& call, std::size_t number) {
    const auto lines_of = [&](int giver) { return giver == 0 ? std::size_t{call.lines} : 1; };
    auto from = own(call.lines, number);
    std::vector<Tensor> taken;
    for (int member = 0; member < size(); ++member) taken.emplace_back(lines_of(member));
    detail::pipelines::Parts gives, takes;
    for (int member = 0; member < size(); ++member) {
      const bool is_other = member != rank();
      gives.push_back({.data = bytes_of(from), .bytes = is_other ? lines_of(rank()) * sizeof(Line) : 0});
      takes.push_back({.data = bytes_of(taken[static_cast<std::size_t>(member)]),
                       .bytes = is_other ? lines_of(member) * sizeof(Line) : 0});
    }
    detail::pipelines::exchange(segments_, gives, takes, late());
    for (int member = 0; member < size(); ++member)
      for (std::size_t line = 0; line < lines_of(member) && member != rank(); ++line)
        require(taken[static_cast<std::size_t>(member)][line].value == given(member, number, line), number,
                "line");
  }

  int rank() const { return segments_.rank(); }
  int size() const { return segments_.size(); }

  // Where the range of `member` begins in a tensor that holds one behind the other.
  static std::size_t begin_of(const Call& call, int member) {
    std::size_t begin = 0;
    for (int before = 0; before < member; ++before)
      begin += call.lines / (static_cast<std::size_t>(before) + 1);
    return begin;
  }
  // Each in two pieces, where it has two lines.
  std::vector<detail::pipelines::Pieces> ranges_of(const Call& call, Tensor& tensor) const {
    std::vector<detail::pipelines::Pieces> ranges(static_cast<std::size_t>(size()));
    for (int member = 0; member < size(); ++member) {
      const auto begin = begin_of(call, member), end = begin_of(call, member + 1);
      const auto middle = std::min(begin + 1, end);
      auto& range = ranges[static_cast<std::size_t>(member)];
      range.add(bytes_of(tensor) + begin * sizeof(Line), (middle - begin) * sizeof(Line));
      range.add(bytes_of(tensor) + middle * sizeof(Line), (end - middle) * sizeof(Line));
    }
    return ranges;
  }

  Tensor own(std::size_t lines, std::size_t number) const {
    Tensor tensor(lines);
    for (std::size_t line = 0; line < lines; ++line) tensor[line].value = given(rank(), number, line);
    return tensor;
  }

  Value sum_of_all(std::size_t number, std::size_t line) const {
    Value sum = 0;
    for (int member = 0; member < size(); ++member) sum += given(member, number, line);
    return sum;
  }

  auto adder() const {
    return [this](const auto& rows, std::size_t bytes, std::byte* output, bool is_for_all) {
      segments_.add_up(rows, bytes, output, is_for_all);
    };
  }

  auto late() const {
    return [this](int /*member*/, Flag& flag, std::uint64_t value) {
      if (waits_long_ || fault == Fault::kNeverAsks) {
        Replay::current().access(
            {.kind = AccessKind::kAwaitLong, .word = flag.value.index, .value = static_cast<Value>(value)});
        return;
      }
      Replay::current().repeat_until([&] {
        ask();
        return sleep_until(flag, value);
      });
    };
  }

  static void ask() {
    if (Replay::current().access({.kind = AccessKind::kAsk}) != 0) throw Left();
  }

  static void require(bool is_right, std::size_t call, const char* what) {
    if (!is_right) throw Violation{"a wrong " + std::string(what) + " in call " + std::to_string(call)};
  }

  Segments segments_;
  detail::BoardProtocol<Segments> board_;
  bool waits_long_;
  std::size_t number_ = 0;
};

}  // namespace lockstep::model
