// A piece of memory that the processes of one machine share: a memfd, which others open through
// /proc/PID/fd. It has no name in any file system, so that nothing is left of it however its processes end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/export.h>
#include <lockstep/base/unique_fd.h>

namespace lockstep::detail {

/// What is wrong with LOCKSTEP_SHARED_MEMORY in the environment, which may be 0, 1 or unset, or with its
/// former name LOCKSTEP_CMA.
LOCKSTEP_API std::optional<ErrorParts> fault_in_memory_switch();

/// Where a segment is to be found, as its process tells others.
struct SegmentAddress {
  std::uint64_t machine = 0;  ///< equal for processes that know each other by the same numbers; 0: no segment
  std::int64_t process = 0;
  std::int64_t descriptor = -1;
  std::uint64_t seal = 0;  ///< a random number that the segment begins with
};

/// A segment, mapped for reading and writing as long as it lives; not in forked children. Movable.
class LOCKSTEP_API SharedSegment {
 public:
  /// kSegmentBytes long, zero but for its seal. Its memory is there at once, in a huge page where the system
  /// gives one. Nothing where the system has no memfd, or no memory for it, or the environment wants none.
  static std::optional<SharedSegment> create();

  /// The one at `address`. Nothing where that is on another machine as far as can be told, the system does
  /// not let this process open it, or it is another one's.
  static std::optional<SharedSegment> open(const SegmentAddress& address);

  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  /// Of one that this process created.
  SegmentAddress address() const;

 private:
  SharedSegment(std::byte* data, UniqueFd fd) : data_(data), fd_(std::move(fd)) {}

  std::byte* data_;
  UniqueFd fd_;  // of the one that created it
};

/// Whether the process that created the segment at `address` is gone, or has closed it.
LOCKSTEP_API bool is_gone(const SegmentAddress& address);

/// One huge page of x86 and most others.
inline constexpr std::size_t kSegmentBytes = 2 << 20;

}  // namespace lockstep::detail
