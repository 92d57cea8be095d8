// Messages that concern a job and not one of its ranks: rank 0 alone prints them.
#pragma once

#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Tells which rank of its job this process is; until then it counts as rank 0. Thread-safe, as all below.
LOCKSTEP_API void set_rank_of_job_log(int rank);

/// log_info() on rank 0, nothing elsewhere.
LOCKSTEP_API void log_info_of_job(std::string_view text);

/// warn_once() on rank 0, nothing elsewhere.
LOCKSTEP_API void warn_once_of_job(std::string_view key, std::string_view text);

}  // namespace lockstep::detail
