// Saves for tests of what happens when saving is disturbed.
//   save_case loop FOLDER     saves states 1, 2, 3, ... as FOLDER until it is killed, a line for each
//   save_case check FOLDER    prints the number of the state in FOLDER; fails unless it is whole
//   save_case faults FOLDER   makes each of the first calls that write fail, with each error
//   save_case faults_without_exchange FOLDER   the same where folders cannot trade places, as on NFS
//   save_case rank_faults FOLDER   the same on one of three ranks
//   save_case save FOLDER     saves state 3 as FOLDER
//   save_case killed FOLDER   the same without an exchange, and is killed when the older one is moved aside
//   save_case busy FOLDER     the same as save, where no folder can be removed
//   save_case synced FOLDER   the same as save; prints the folders that are synced
//   save_case local_killed:N FOLDER   two nodes save states 1 and 2 in memory below FOLDER; the job is killed
//                                     in the N-th call that changes a file since it has begun with the second
//   save_case local_faults FOLDER     the same, and all such calls from the N-th on fail, for each N
//   save_case local_check FOLDER      prints the number of the state that they go on from
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>

#include <lockstep/base/error.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/torch.h>

#include "checkpoint/local_checkpoints.h"
#include "support/next_function.h"

namespace {

// Counts down with each call that changes the disk; at 0 they fail, and go on failing as a full disk does.
std::atomic<int> calls_left{-1};
std::atomic<int> error_number{0};
std::atomic<bool> is_once{false};
thread_local bool is_victim = true;  // threads whose calls count

std::atomic<bool> can_exchange{true};
std::atomic<bool> dies_aside{false};
std::atomic<bool> can_remove{true};
std::atomic<bool> prints_synced{false};
std::atomic<bool> is_deadly{false};

bool fails() {
  if (!is_victim) return false;
  int left = calls_left;
  while (left > 0) {  // in one step: two threads that both saw 1 would leave -1, and nothing would fail
    if (calls_left.compare_exchange_weak(left, left - 1)) return false;
  }
  if (left < 0) return false;
  if (is_deadly) ::raise(SIGKILL);
  if (is_once) calls_left = -1;
  errno = error_number;
  return true;
}

bool is_file(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

// In front of libc's.
#pragma GCC visibility push(default)
extern "C" {
ssize_t write(int fd, const void* bytes, std::size_t count) {
  static const auto real = lockstep::test::next_function<ssize_t (*)(int, const void*, std::size_t)>("write");
  return fd > 2 && is_file(fd) && fails() ? -1 : real(fd, bytes, count);
}
int fsync(int fd) {
  static const auto real = lockstep::test::next_function<int (*)(int)>("fsync");
  if (prints_synced && !is_file(fd))
    std::cout << std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string() << std::endl;
  return fails() ? -1 : real(fd);
}
int rename(const char* from, const char* to) {
  static const auto real = lockstep::test::next_function<int (*)(const char*, const char*)>("rename");
  const int result = fails() ? -1 : real(from, to);
  if (dies_aside && result == 0 && std::string_view(to).ends_with(".old")) ::raise(SIGKILL);
  return result;
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned int flags) noexcept {
  static const auto real =
      lockstep::test::next_function<int (*)(int, const char*, int, const char*, unsigned int)>("renameat2");
  if (!can_exchange) errno = EINVAL;
  return !can_exchange || fails() ? -1 : real(from_folder, from, to_folder, to, flags);
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  static const auto real = lockstep::test::next_function<int (*)(int, const char*, int)>("unlinkat");
  if (!can_remove) errno = EBUSY;
  if (is_deadly) (void)fails();
  return can_remove ? real(folder, path, flags) : -1;
}
int mkdir(const char* path, mode_t mode) {
  static const auto real = lockstep::test::next_function<int (*)(const char*, mode_t)>("mkdir");
  return fails() ? -1 : real(path, mode);
}
}
#pragma GCC visibility pop

namespace {

using namespace lockstep;
using lockstep::detail::LocalCheckpoints;

constexpr int kTensors = 24;

CheckpointState state_of(std::int64_t number) {
  StateTree model, optimizer, shared;
  for (int i = 0; i < kTensors; ++i) {
    const auto name = "layer." + std::to_string(i);
    model.set(name, torch::full({4096 + i}, static_cast<float>(number)));
    optimizer.set(name, torch::full({4096 + i}, static_cast<float>(-number)));
  }
  shared.set("model", model);
  shared.set("optimizer", optimizer);
  shared.set("number", number);
  return {.shared = shared};
}

std::int64_t check(const std::filesystem::path& folder) {
  const auto shared = Checkpoint(folder).shared();
  const auto number = shared.get<std::int64_t>("number");
  if (!differences(state_of(number).shared, shared).empty()) throw std::runtime_error("a mixed state");
  return number;
}

int loop(const std::filesystem::path& folder) {
  for (std::int64_t number = 1;; ++number) {
    save_checkpoint(folder, state_of(number), {});
    std::cout << number << std::endl;
  }
}

int save(const std::filesystem::path& folder) {
  save_checkpoint(folder, state_of(3), {});
  return 0;
}

// Returns whether the fault came.
bool try_fault(const std::filesystem::path& folder, int call, int error, bool once) {
  error_number = error;
  is_once = once;
  calls_left = call;
  bool failed = false;
  try {
    save_checkpoint(folder, state_of(2), {});
  } catch (const IoError& failure) {
    failed = true;
    if (std::strstr(failure.what(), std::strerror(error)) == nullptr) throw;
  }
  const bool came = calls_left <= 0 && (calls_left == 0 || once);
  calls_left = -1;
  if (failed && check(folder) == 2) throw std::runtime_error("said to have failed, and did not");
  return came && failed;
}

int faults(const std::filesystem::path& folder) {
  int count = 0;
  for (const int error : {ENOSPC, EIO, EDQUOT}) {
    for (const bool once : {false, true}) {
      for (int call = 0; call < 100; ++call) {
        save_checkpoint(folder, state_of(1), {});
        if (!try_fault(folder, call, error, once)) break;
        ++count;
        if (check(folder) != 1) throw std::runtime_error("the old one is gone");
      }
    }
  }
  std::cout << count << " faults" << std::endl;
  return 0;
}

// Rank 1 of three cannot write: all are told by name, and have the old one.
bool try_rank_fault(const std::filesystem::path& folder, int call) {
  error_number = ENOSPC;
  is_once = false;
  calls_left = call;
  std::atomic<int> failed = 0;
  testing::run_ranks(3, [&](const Communicator& communicator) {
    is_victim = communicator.rank() == 1;
    try {
      save_checkpoint(folder, state_of(2), {}, communicator, {.state_dict_type = StateDictType::kSharded});
    } catch (const IoError& error) {
      ++failed;
      if (std::strstr(error.what(), "rank 1") == nullptr) throw;
    }
  });
  calls_left = -1;
  if (failed != 0 && failed != 3) throw std::runtime_error("some were told, and some not");
  return failed == 3;
}

int rank_faults(const std::filesystem::path& folder) {
  int count = 0;
  save_checkpoint(folder, state_of(1), {});
  while (count < 100 && try_rank_fault(folder, count)) {
    ++count;
    if (check(folder) != 1) throw std::runtime_error("the old one is gone");
  }
  if (check(folder) != 2) throw std::runtime_error("the new one is not there");
  std::cout << count << " faults" << std::endl;
  return 0;
}

void on_two_nodes(const std::filesystem::path& folder,
                  const std::function<void(LocalCheckpoints&, const Communicator&)>& body) {
  testing::run_ranks(2, [&](const Communicator& communicator) {
    LocalCheckpoints local(folder / std::to_string(communicator.rank()), "/runs/a", 2, communicator);
    body(local, communicator);
    communicator.barrier();
  });
}

std::int64_t local_number(const std::filesystem::path& folder) {
  std::atomic<std::int64_t> number = 0;
  on_two_nodes(folder, [&](LocalCheckpoints& local, const Communicator&) {
    for (const auto& candidate : local.find({"/runs/a"})) {
      try {
        const auto shared = local.open(candidate, Verify::kAll).shared();
        const auto found = shared.get<std::int64_t>("number");
        if (!differences(state_of(found).shared, shared).empty()) throw std::runtime_error("a mixed state");
        number = found;
        return;
      } catch (const CheckpointError& error) {
        if (std::strstr(error.what(), "not whole") == nullptr) throw;
      }
    }
  });
  return number;
}

void save_local(LocalCheckpoints& local, std::int64_t number) {
  local.save(state_of(number), {.global_step = number});
  local.wait();
}

int local_killed(const std::filesystem::path& folder, int call) {
  on_two_nodes(folder, [&](LocalCheckpoints& local, const Communicator& communicator) {
    save_local(local, 1);
    communicator.barrier();
    is_deadly = true;
    calls_left = call;
    communicator.barrier();
    save_local(local, 2);
    communicator.barrier();
    calls_left = -1;
  });
  return 0;
}

// Returns whether the fault came; then both nodes have heard of it.
bool try_local_fault(const std::filesystem::path& folder, int call) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  std::atomic<int> failed = 0;
  on_two_nodes(folder, [&](LocalCheckpoints& local, const Communicator& communicator) {
    save_local(local, 1);
    communicator.barrier();
    error_number = ENOSPC;
    calls_left = call;
    communicator.barrier();
    try {
      save_local(local, 2);
    } catch (const IoError& error) {
      ++failed;
      if (std::strstr(error.what(), std::strerror(ENOSPC)) == nullptr) throw;
    }
    communicator.barrier();
    calls_left = -1;
  });
  if (failed != 0 && failed != 2) throw std::runtime_error("one was told, and one not");
  const auto number = local_number(folder);  // also the second where the last rename of all has failed
  if (number != 2 && (failed == 0 || number != 1)) throw std::runtime_error("none is whole");
  return failed != 0;
}

int local_faults(const std::filesystem::path& folder) {
  int count = 0;
  while (count < 1000 && try_local_fault(folder, count)) ++count;
  std::cout << count << " faults" << std::endl;
  return 0;
}

// Calls with nothing to do find libc's functions, before threads look for them while others load libraries:
// those wait for each other.
void find_functions() {
  (void)!::write(-1, "", 0);
  (void)::fsync(-1);
  (void)::rename("", "");
  (void)::renameat2(-1, "", -1, "", 0);
  (void)::unlinkat(-1, "", 0);
  (void)::mkdir("", 0);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  find_functions();
  const std::string mode = argv[1];
  if (mode == "loop") return loop(argv[2]);
  can_exchange = mode != "killed" && mode != "faults_without_exchange";
  dies_aside = mode == "killed";
  can_remove = mode != "busy";
  prints_synced = mode == "synced";
  if (mode == "save" || mode == "killed" || mode == "busy" || mode == "synced") return save(argv[2]);
  if (mode.starts_with("faults")) return faults(argv[2]);
  if (mode == "rank_faults") return rank_faults(argv[2]);
  if (mode.starts_with("local_killed:"))
    return local_killed(argv[2], std::stoi(mode.substr(mode.find(':') + 1)));
  if (mode == "local_faults") return local_faults(argv[2]);
  std::cout << (mode == "local_check" ? local_number(argv[2]) : check(argv[2])) << std::endl;
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << std::endl;
  return 1;
}
