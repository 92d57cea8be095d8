// Which accesses to memory nothing orders. Every stream counts its kernels; a vector clock holds, per stream,
// the number of the last kernel that is known to be over. A kernel that is not in another's clock may run
// beside it (as in torch.cuda._sanitizer; Lamport 1978, Mattern 1989).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::sim {

constexpr int kMaxDevices = 4;
constexpr int kStreamsPerDevice = 32;
constexpr int kMaxStreams = kMaxDevices * kStreamsPerDevice;

using VectorClock = std::array<std::uint64_t, kMaxStreams>;

/// `clock` then knows what `other` knows, too.
void join(VectorClock& clock, const VectorClock& other);

/// Bytes from `begin` to `end`; with a stride, of them the rows that start every `stride` bytes.
struct Span {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool is_written = false;
  std::uintptr_t row_bytes = 0;
  std::uintptr_t stride = 0;
};

/// May say so of rows with different strides that lie beside each other.
bool overlap(const Span& a, const Span& b);

struct Access {
  Span span;
  int stream = 0;
  std::uint64_t number = 0;  ///< in its stream
  std::string op;
};

/// The accesses to one block of memory that later ones must be ordered after.
class AccessHistory {
 public:
  /// The last one of each stream that overlaps `span`, one of both writing, and that `clock` of `stream` does
  /// not know: whoever is ordered after it is so after those before it.
  std::vector<Access> unordered(const Span& span, int stream, const VectorClock& clock) const;

  /// Whoever is ordered after `access` is so after those that it takes the place of.
  void add(Access access);

  bool is_over(const VectorClock& clock) const;

 private:
  std::vector<Access> accesses_;
};

/// "sim:0 stream 3".
std::string stream_name(int stream);

/// What the report of a kernel says that is not ordered after `earlier`.
std::string describe_race(const std::string& op, bool frees, const Span& span, int stream,
                          const Access& earlier);

}  // namespace lockstep::sim
