#include "sim/races.h"

#include <algorithm>

namespace lockstep::sim {
namespace {

bool is_contiguous(const Span& span) { return span.stride == 0; }

// Rows of two spans seen as arcs of a circle of `stride` bytes.
bool rows_meet(std::uintptr_t a, std::uintptr_t a_bytes, std::uintptr_t b, std::uintptr_t b_bytes,
               std::uintptr_t stride) {
  if (a_bytes >= stride || b_bytes >= stride) return true;
  const auto from_a = (b % stride + stride - a % stride) % stride;
  return from_a < a_bytes || stride - from_a < b_bytes;
}

bool covers(const Span& whole, const Span& part) {
  if (part.begin < whole.begin || whole.end < part.end) return false;
  if (is_contiguous(whole)) return true;
  return whole.stride == part.stride && whole.row_bytes >= part.row_bytes &&
         (part.begin - whole.begin) % whole.stride + part.row_bytes <= whole.row_bytes;
}

}  // namespace

void join(VectorClock& clock, const VectorClock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

bool overlap(const Span& a, const Span& b) {
  if (a.end <= b.begin || b.end <= a.begin) return false;
  if (is_contiguous(a) && is_contiguous(b)) return true;
  if (is_contiguous(a)) return rows_meet(a.begin, a.end - a.begin, b.begin, b.row_bytes, b.stride);
  if (is_contiguous(b)) return rows_meet(a.begin, a.row_bytes, b.begin, b.end - b.begin, a.stride);
  return a.stride != b.stride || rows_meet(a.begin, a.row_bytes, b.begin, b.row_bytes, a.stride);
}

std::vector<Access> AccessHistory::unordered(const Span& span, int stream, const VectorClock& clock) const {
  std::vector<Access> found;
  for (const auto& access : accesses_) {
    const bool conflicts = access.span.is_written || span.is_written;
    if (access.stream == stream || !conflicts || clock[access.stream] >= access.number) continue;
    if (!overlap(access.span, span)) continue;
    std::erase_if(found, [&](const Access& earlier) { return earlier.stream == access.stream; });
    found.push_back(access);
  }
  return found;
}

void AccessHistory::add(Access access) {
  std::erase_if(accesses_, [&](const Access& earlier) {
    const bool is_implied =
        access.span.is_written || (!earlier.span.is_written && earlier.stream == access.stream);
    return is_implied && covers(access.span, earlier.span);
  });
  accesses_.push_back(std::move(access));
}

bool AccessHistory::is_over(const VectorClock& clock) const {
  return std::ranges::all_of(accesses_,
                             [&](const Access& access) { return clock[access.stream] >= access.number; });
}

std::string stream_name(int stream) {
  return "sim:" + std::to_string(stream / kStreamsPerDevice) + " stream " +
         std::to_string(stream % kStreamsPerDevice);
}

std::string describe_race(const std::string& op, bool frees, const Span& span, int stream,
                          const Access& earlier) {
  const auto* const does = earlier.span.is_written ? " writes" : " reads";
  const auto other = earlier.op + does;
  if (frees)
    return "use after free: memory is freed on " + stream_name(stream) + " while " + other + " it on " +
           stream_name(earlier.stream) + "; record_stream() or a wait is missing";
  if (span.is_written)
    return "missing wait: " + op + " writes on " + stream_name(stream) + " what " + other + " on " +
           stream_name(earlier.stream) + "; nothing orders them";
  return "read before ready: " + op + " reads on " + stream_name(stream) + " what " + other + " on " +
         stream_name(earlier.stream) + "; nothing orders them";
}

}  // namespace lockstep::sim
