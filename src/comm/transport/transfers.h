// Sends and receives of one collective that are under way together.
#pragma once

#include <cstddef>
#include <cstdint>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// For algorithms that go on as soon as a part has arrived. Made by Transport::begin_transfers(), one at a
/// time, and used by one thread. Memory is borrowed until finish() returns, or what has thrown is destroyed:
/// then nobody uses it any more. Nothing is sent or received for zero bytes.
class LOCKSTEP_API Transfers {
 public:
  /// From one rank to another those of a stream arrive in the order in which they were sent, in what was
  /// posted for them in that order, each of the same size. Sums overtake what is not under way yet.
  enum class Stream : std::uint32_t { kParts, kRows, kSums };
  static constexpr int kUnnumbered = -1;

  virtual ~Transfers() = default;

  /// Both return at once.
  virtual void send(int dst, Stream stream, const std::byte* data, std::size_t bytes) = 0;
  virtual void receive(int src, Stream stream, std::byte* place, std::size_t bytes,
                       int number = kUnnumbered) = 0;

  /// Blocks until a numbered receive is complete, and returns its number; each once.
  /// @throws what the transport fails with, as finish()
  virtual int await_numbered() = 0;

  /// Blocks until all memory may be used again.
  virtual void finish() = 0;
};

}  // namespace lockstep::detail
