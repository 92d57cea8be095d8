// Memory of the other ranks on this machine, read without sockets (cross-memory attach): one copy, where a
// socket costs two and the work of its two ends.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Where bytes lie that a peer may read.
struct MemoryOffer {
  std::int64_t process;
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint64_t seal_address;  ///< of 8 bytes that hold
  std::uint64_t seal;          ///< as long as those offered are what they were
};

/// Equal for processes that know each other by the same process ids. 0 where LOCKSTEP_CMA=0 says that they
/// shall not read each other's memory. Where the system lets only descendants read (Yama), allows
/// processes of the same user to read that of this one. @throws ConfigError for another value than 0 or 1
LOCKSTEP_API std::uint64_t machine_of_this_process();

/// Copies what is offered to `to`; false where the system does not allow it. Blocking.
/// @throws std::runtime_error when the process or its memory is gone, or what it offered may have changed
LOCKSTEP_API bool read_peer_memory(const MemoryOffer& offer, void* to);

}  // namespace lockstep::detail
