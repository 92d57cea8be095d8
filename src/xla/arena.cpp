#include "xla/arena.h"

#include <c10/core/ScalarType.h>

namespace lockstep::xla {
namespace {

// A part of one array that goes to memory from `begin` on.
struct Run {
  Named source = {};  // flat
  std::int64_t begin = 0, source_begin = 0, size = 0;
  bool is_of_arena = false;
};

Named whole_of(const Named& part) { return {part.whole, {{part.whole_size}, part.shape.dtype}}; }

Run run_of(const FlatWrite& write) {
  const auto size = write.values.shape.numel();
  if (write.values.whole.empty()) return {write.values, write.begin, 0, size};
  return {whole_of(write.values), write.begin, write.values.begin, size, write.values.is_of_arena};
}

bool continues(const Run& run, const Run& next) {
  const auto gap = next.begin - (run.begin + run.size);
  const bool are_of_arena = run.is_of_arena && next.is_of_arena;
  const auto most = are_of_arena ? elements_of_alignment(run.source.shape.dtype) : 1;
  return next.source.name == run.source.name && gap >= 0 && gap < most &&
         next.begin - run.begin == next.source_begin - run.source_begin;
}

// To the end of the memory, where only what is nobody's follows.
void extend_to_end(Run& run, std::int64_t end) {
  const auto rest = end - (run.begin + run.size);
  if (!run.is_of_arena || rest >= elements_of_alignment(run.source.shape.dtype)) return;
  if (run.source_begin + run.size + rest <= run.source.shape.numel()) run.size += rest;
}

Named with_run(Emitter& emit, const Named& memory, const Run& run) {
  const auto values = emit.slice(run.source, run.source_begin, run.source_begin + run.size);
  if (run.size == memory.shape.numel()) return values;
  const auto begin = emit.constant(run.begin, {{}, at::kLong});
  return emit.emit("stablehlo.dynamic_update_slice " + memory.name + ", " + values.name + ", " + begin.name +
                       " : (" + type_text(memory.shape) + ", " + type_text(values.shape) +
                       ", tensor<i64>) -> " + type_text(memory.shape),
                   memory.shape);
}

}  // namespace

std::int64_t elements_of_alignment(at::ScalarType dtype) {
  constexpr std::int64_t kBytes = 64;
  return kBytes / static_cast<std::int64_t>(c10::elementSize(dtype));
}

std::optional<Arena> Arena::of(const std::vector<Named>& arrays) {
  if (arrays.empty() || arrays.front().whole.empty()) return std::nullopt;
  const auto& first = arrays.front();
  Arena arena;
  arena.whole_ = whole_of(first);
  arena.first_ = first.begin;
  arena.dtype_ = first.shape.dtype;
  const auto alignment = elements_of_alignment(arena.dtype_);
  auto end = first.begin;
  for (const auto& array : arrays) {
    const bool is_behind = array.whole == first.whole && array.shape.dtype == first.shape.dtype &&
                           array.begin >= end && array.begin - end < alignment;
    if (!is_behind) return std::nullopt;
    arena.begins_.push_back(array.begin - arena.first_);
    arena.sizes_.push_back(array.shape.sizes);
    end = array.end();
  }
  const auto rest = first.whole_size - end;
  arena.size_ = end - arena.first_ + (rest < alignment ? rest : 0);
  return arena;
}

bool Arena::matches(const Arena& other) const {
  return begins_ == other.begins_ && sizes_ == other.sizes_ && size_ == other.size_ && dtype_ == other.dtype_;
}

Named Arena::flat(Emitter& emit) const { return emit.slice(whole_, first_, first_ + size_); }

Named Arena::flat_of(Emitter& emit, const std::vector<Named>& arrays) const {
  std::vector<Named> parts;
  std::int64_t end = 0;
  const auto fill_until = [&](std::int64_t begin) {
    if (begin > end) parts.push_back(emit.constant(0.0, {{begin - end}, dtype_}));
  };
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    fill_until(begins_[i]);
    parts.push_back(emit.reshape(arrays[i], {arrays[i].shape.numel()}));
    end = begins_[i] + arrays[i].shape.numel();
  }
  fill_until(size_);
  return emit.concatenate(parts, 0);
}

std::vector<Named> Arena::parts(Emitter& emit, const Named& flat) const {
  std::vector<Named> parts;
  for (std::size_t i = 0; i < begins_.size(); ++i) {
    const auto count = Shape{sizes_[i]}.numel();
    auto part = emit.slice(flat, begins_[i], begins_[i] + count);
    part.is_of_arena = true;
    parts.push_back(emit.reshape(part, sizes_[i]));
  }
  return parts;
}

Named with_writes(Emitter& emit, Named memory, const std::vector<FlatWrite>& writes) {
  std::vector<Run> runs;
  for (const auto& write : writes) {
    const auto next = run_of(write);
    if (!runs.empty() && continues(runs.back(), next))
      runs.back().size = next.begin + next.size - runs.back().begin;
    else
      runs.push_back(next);
  }
  for (auto& run : runs) {
    extend_to_end(run, memory.shape.numel());
    memory = with_run(emit, memory, run);
  }
  return memory;
}

}  // namespace lockstep::xla
