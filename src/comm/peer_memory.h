// Memory of the other ranks on this machine, read without sockets (cross-memory attach): one copy, where a
// socket costs two and the work of its two ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Below, telling where they are costs more than sending them.
inline constexpr std::size_t kLeastPeerMemoryBytes = 256 << 10;

/// A process that lets others read its memory.
struct MemoryOwner {
  std::uint64_t machine;  ///< machine_of_this_process()
  std::int64_t process;
  std::uint64_t seal_address;  ///< of 8 bytes that hold
  std::uint64_t seal;          ///< as long as what it offers is what it was
};

/// Where bytes lie that a peer may read.
struct MemoryOffer {
  MemoryOwner owner;
  std::uint64_t address;
  std::uint64_t bytes;
};

/// What this process vouches with for the memory that it offers. Thread-safe.
class LOCKSTEP_API Seal {
 public:
  Seal();
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;

  /// Where it is, and what holds now.
  MemoryOwner owner() const;
  /// What is offered is not what it was any more: who reads it from now on gets an error.
  void revoke() { value_ = 0; }

 private:
  std::atomic<std::uint64_t> value_;
};

/// Equal for processes that know each other by the same process ids. 0 where LOCKSTEP_CMA=0 says that they
/// shall not read each other's memory. Where the system lets only descendants read (Yama), allows
/// processes of the same user to read that of this one. @throws ConfigError for another value than 0 or 1
LOCKSTEP_API std::uint64_t machine_of_this_process();

/// Whether this process may read that one's memory, and it vouches for it.
LOCKSTEP_API bool can_read_memory_of(const MemoryOwner& owner);

/// Copies what is offered to `to`; false where the system does not allow it. Blocking.
/// @throws std::runtime_error when the process or its memory is gone, or what it offered may have changed
LOCKSTEP_API bool read_peer_memory(const MemoryOffer& offer, void* to);
/// The same for `bytes` of it, from `begin` on.
LOCKSTEP_API bool read_peer_memory(const MemoryOffer& offer, std::uint64_t begin, std::uint64_t bytes,
                                   void* to);

}  // namespace lockstep::detail
