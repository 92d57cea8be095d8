// Memory of the other ranks on this machine, read without sockets (cross-memory attach): one copy, where a
// socket costs two and the work of its two ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

#include <lockstep/base/error.h>
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

/// Where bytes of one lie that a peer may read.
struct MemoryPart {
  std::uint64_t address;
  std::uint64_t bytes;
};

/// `bytes` bytes of this process, from `begin` on.
inline MemoryPart memory_part(const void* begin, std::size_t bytes) {
  return {.address = reinterpret_cast<std::uint64_t>(begin), .bytes = bytes};  // NOLINT
}

/// What the ranks of a group have found out about each other: the same on all of them.
struct LOCKSTEP_API MemoryAccess {
  std::vector<MemoryOwner> owners;         ///< by rank
  std::vector<std::uint8_t> can_read_all;  ///< each rank's can_read_each(), one after the other

  bool can_read(std::size_t reader, std::size_t owner) const {
    return can_read_all[reader * owners.size() + owner] != 0;
  }
  /// Whether every rank can read the memory of all.
  bool is_mutual() const;
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
  void revoke() {
    value_ = 0;
    std::atomic_thread_fence(std::memory_order_seq_cst);  // before what the caller writes there next
  }

 private:
  std::atomic<std::uint64_t> value_;
};

/// What is wrong with LOCKSTEP_CMA in the environment, which may be 0, 1 or unset.
LOCKSTEP_API std::optional<ErrorParts> fault_in_memory_switch();

/// Equal for processes that know each other by the same process ids, as far as can be told without trying. 0
/// where LOCKSTEP_CMA=0 says that they shall not read each other's memory. Where the system lets only
/// descendants read (Yama), allows processes of the same user to read that of this one, for as long as it
/// lives.
LOCKSTEP_API std::uint64_t machine_of_this_process();

/// Whether this process may read that one's memory, and it vouches for it.
LOCKSTEP_API bool can_read_memory_of(const MemoryOwner& owner);
/// The same for each of `owners`, of which this process is owners[own]: 1 or 0. None is read that is
/// elsewhere as far as can be told.
LOCKSTEP_API std::vector<std::uint8_t> can_read_each(std::span<const MemoryOwner> owners, std::size_t own);

/// Copies `part` of its memory to `to`. An error where the system does not let this process read it, though
/// it may be there. Blocking.
/// @throws std::runtime_error when the process or its memory is gone, or what it offered may have changed;
///   std::system_error when the system fails
[[nodiscard]] LOCKSTEP_API std::error_code read_peer_memory(const MemoryOwner& owner, const MemoryPart& part,
                                                            void* to);

}  // namespace lockstep::detail
