#include "launch/run_directory_lock.h"

#include <cerrno>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <lockstep/base/error.h>

#include "base/folder_lock.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kWait{5};
constexpr std::chrono::milliseconds kBetweenTries{20};

UniqueFd lock_of(const fs::path& folder) {
  const auto deadline = std::chrono::steady_clock::now() + kWait;
  while (true) {
    auto lock = detail::lock_alone(folder);
    if (lock || errno != EWOULDBLOCK) return lock;
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(kBetweenTries);
  }
  throw ConfigError("launch", {.what = "run directory " + folder.string() + " is in use",
                               .expected = "a folder for each run",
                               .got = "another process of this machine that is writing its run there",
                               .where = "",
                               .hint = "wait for its end, or choose another folder with --run_dir"});
}

}  // namespace

RunDirectoryLock hold_run_directory(const fs::path& folder) {
  static std::mutex mutex;
  static std::map<fs::path, std::weak_ptr<const UniqueFd>> held;
  if (folder.empty()) return nullptr;
  std::error_code is_missing;
  const auto place = fs::weakly_canonical(folder, is_missing);
  const std::lock_guard guard(mutex);
  if (auto lock = held[place].lock()) return lock;
  auto fd = lock_of(place);
  if (!fd) return nullptr;
  const auto lock = std::make_shared<const UniqueFd>(std::move(fd));
  held[place] = lock;
  return lock;
}

}  // namespace lockstep::launch
