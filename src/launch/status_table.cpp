#include "launch/status_table.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>

#include <lockstep/base/log.h>

namespace lockstep::launch {
namespace {

using Mark = std::atomic<std::uint32_t>;

constexpr auto kName = "lockstep-status";

std::atomic<bool> status_is_lost = false;

std::size_t table_bytes(int ranks) {
  return static_cast<std::size_t>(ranks) * (sizeof(RankStatus) + sizeof(Mark));
}

Mark* marks_of(RankStatus* table, int ranks) { return reinterpret_cast<Mark*>(table + ranks); }

RankStatus* map_table(int fd, int ranks) {
  void* memory = ::mmap(nullptr, table_bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) throw_errno("cannot map the status of the ranks");
  return static_cast<RankStatus*>(memory);
}

// A program that has closed all descriptors may have opened others since.
bool is_table(int fd) {
  std::error_code gone;
  const auto file = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), gone);
  return file.string().starts_with(std::string("/memfd:") + kName);
}

UniqueFd make_file(int ranks) {
  UniqueFd fd(::memfd_create(kName, MFD_CLOEXEC));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(table_bytes(ranks))) != 0) {
    throw_errno("cannot create the status of the ranks");
  }
  return fd;
}

}  // namespace

StatusTable::StatusTable(int ranks)
    : ranks_(ranks),
      fd_(make_file(ranks)),
      slots_(map_table(fd_.get(), ranks)),
      written_(marks_of(slots_, ranks)) {
  std::uninitialized_default_construct_n(slots_, ranks_);
  std::uninitialized_value_construct_n(written_, ranks_);
}

StatusTable::~StatusTable() { ::munmap(slots_, table_bytes(ranks_)); }

void StatusTable::expect_all_written() {
  for (int local_rank = 0; local_rank < ranks_; ++local_rank) written_[local_rank] = 1;
}

bool is_status_lost() { return status_is_lost.load(); }

void attach_rank_status(int fd, int ranks, int local_rank) {
  if (!is_table(fd)) {
    status_is_lost.store(true);
    warn_once("launch.status",
              "LOCKSTEP_STATUS_FD: descriptor " + std::to_string(fd) +
                  " is not the launcher's any more: a program between it and this one has closed it, as "
                  "Python's subprocess does by default; what a rank was doing when it failed cannot be told");
    return;
  }
  UniqueFd owned(fd);
  struct stat file {};
  const bool fits = ::fstat(fd, &file) == 0 && file.st_size == static_cast<off_t>(table_bytes(ranks));
  if (!fits || local_rank < 0 || local_rank >= ranks) {
    throw ConfigError("launch", {.what = "environment variable LOCKSTEP_STATUS_FD",
                                 .expected = "the status table of " + std::to_string(ranks) + " ranks",
                                 .got = std::to_string(fd),
                                 .hint = "start ranks and launcher from the same version of lockstep"});
  }
  auto* slots = map_table(fd, ranks);
  marks_of(slots, ranks)[local_rank] = 1;
  use_rank_status(slots[local_rank]);
}

}  // namespace lockstep::launch
