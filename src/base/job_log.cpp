#include "base/job_log.h"

#include <atomic>

#include <lockstep/base/log.h>

namespace lockstep::detail {
namespace {

std::atomic<int> rank_of_job{0};

}  // namespace

void set_rank_of_job_log(int rank) { rank_of_job = rank; }

void log_info_of_job(std::string_view text) {
  if (rank_of_job == 0) log_info(text);
}

void warn_once_of_job(std::string_view key, std::string_view text) {
  if (rank_of_job == 0) warn_once(key, text);
}

}  // namespace lockstep::detail
