#include <lockstep/launch/spawn.h>

#include <sys/mman.h>
#include <sys/stat.h>

#include <lockstep/base/env.h>
#include <lockstep/launch/launch.h>

#include "launch/posix.h"
#include "launch/rank_observer.h"
#include "launch/supervisor.h"

namespace lockstep {
namespace {

// The result of rank 0, in a file without a name, of any length, that all processes share. Its first byte
// says whether there is one.
class ResultFile {
 public:
  ResultFile() : fd_(::memfd_create("lockstep-result", MFD_CLOEXEC)) {
    if (!fd_) launch::throw_errno("cannot create the result of the processes");
  }

  void write(const std::string& result) const {
    const auto bytes = '\1' + result;
    for (std::size_t done = 0; done < bytes.size();) {
      const auto count = ::write(fd_.get(), bytes.data() + done, bytes.size() - done);
      if (count < 0 && errno != EINTR) launch::throw_errno("cannot hand over the result of rank 0");
      done += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    }
  }

  bool has_result() const { return size() > 0; }

  std::string read() const {
    std::string bytes(size(), '\0');
    for (std::size_t done = 0; done < bytes.size();) {
      const auto count =
          ::pread(fd_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
      if (count < 0 && errno != EINTR) launch::throw_errno("cannot read the result of rank 0");
      done += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    }
    return bytes.substr(1);
  }

 private:
  std::size_t size() const {
    struct stat file {};
    ::fstat(fd_.get(), &file);
    return static_cast<std::size_t>(file.st_size);
  }

  UniqueFd fd_;
};

void require_fork() {
  if (can_fork()) return;
  throw ConfigError("launch", {.what = "spawn() cannot fork this process",
                               .expected = "one thread",
                               .got = "more",
                               .hint = "call it first thing in main(), before the first tensor operation: "
                                       "LibTorch's threads would be missing in the processes"});
}

void rethrow(const launch::LaunchEnd& end) {
  if (end.exit_code == 0) return;
  if (end.failure) throw ProcessError({.what = end.failure->cause}, end.failure->rank, end.exit_code);
  throw ProcessError({.what = "stopped by " + launch::signal_name(end.exit_code - launch::kExitSignalled)},
                     -1, end.exit_code);
}

}  // namespace

void detail::spawn_processes(const SpawnOptions& options, const std::function<void(int rank)>& body) {
  require_fork();
  rethrow(launch::run_forked_ranks({.nprocs = options.nprocs, .print_failure = false}, [&] {
    body(static_cast<int>(env::require_int("RANK")));
    return 0;
  }));
}

std::string detail::spawn_for_result(const SpawnOptions& options,
                                     const std::function<std::string(int rank)>& body) {
  const ResultFile file;
  spawn_processes(options, [&](int rank) {
    const auto result = body(rank);
    if (rank == 0) file.write(result);
  });
  if (!file.has_result()) {
    throw ProcessError(
        {.what = "rank 0 ended before its function returned", .hint = "it may have called exit(0)"}, 0, 1);
  }
  return file.read();
}

}  // namespace lockstep
