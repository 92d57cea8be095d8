// What is said of a rank that has run out of memory: what it asked for, where its memory was, and what would
// make room.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>
#include <lockstep/base/rank_status.h>

namespace lockstep::detail {

/// Whether `error` says that memory is short: std::bad_alloc, or by its text an error of LibTorch's
/// allocators.
LOCKSTEP_API bool is_memory_failure(const std::exception& error);

/// How much was asked for, where LibTorch's text says it. Bytes.
LOCKSTEP_API std::optional<std::int64_t> asked_bytes(std::string_view text);

/// "; peak so far 1.2 GiB: parameters 145 MiB, ...; to make room, in this order: ..." of a rank with
/// `status`; of that only what is known. Empty where the diagnosis is off.
LOCKSTEP_API std::string memory_report(const RankStatus& status, std::int64_t peak_bytes);

/// What `error`, which is being handled, says, and in which hook it was thrown (base/failure_place.h) unless
/// it says where it happened; where memory was short, also what was asked for, where this rank's memory is,
/// and what would make room.
LOCKSTEP_API std::string failure_text(const std::exception& error);

/// How often the kernel has killed a process for want of memory, in this cgroup or, where that is not told,
/// on this machine. `proc` and `cgroups` are where the kernel shows it.
LOCKSTEP_API std::int64_t memory_kills(const std::filesystem::path& proc = "/proc",
                                       const std::filesystem::path& cgroups = "/sys/fs/cgroup");

}  // namespace lockstep::detail
