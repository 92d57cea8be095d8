#include "cluster/environment_end.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/log.h>

#include "base/system.h"

namespace lockstep::cluster {
namespace {

using Environments = std::vector<std::shared_ptr<ClusterEnvironment>>;

struct Promised {
  std::mutex mutex;
  pid_t process = 0;
  Environments environments;
};

// It is never destroyed: exit() may ask for it after static objects are gone.
Promised& promised() {
  static auto* const all = new Promised;
  return *all;
}

// Those of a parent live on: their destructors are the parent's to run.
void forget_those_of_parent(Promised& all) {
  if (all.process == ::getpid()) return;
  if (!all.environments.empty()) (void)new Environments(std::move(all.environments));
  all.environments.clear();
  all.process = ::getpid();
  detail::at_end_of_process([] { end_environments(); });
}

Environments take_all() {
  auto& all = promised();
  const std::scoped_lock lock(all.mutex);
  if (all.process != ::getpid()) return {};
  return std::exchange(all.environments, {});
}

void tear_down(ClusterEnvironment& environment) {
  try {
    environment.teardown();
  } catch (const std::exception& error) {
    log_warning("teardown of the cluster environment failed: " + std::string(error.what()));
  } catch (...) {
    log_warning("teardown of the cluster environment failed");
  }
}

}  // namespace

void tear_down_at_end(std::shared_ptr<ClusterEnvironment> environment) {
  auto& all = promised();
  const std::scoped_lock lock(all.mutex);
  forget_those_of_parent(all);
  if (std::ranges::count(all.environments, environment) == 0)
    all.environments.push_back(std::move(environment));
}

void end_environments() noexcept {
  auto environments = take_all();
  while (!environments.empty()) {
    tear_down(*environments.back());
    environments.pop_back();
  }
}

}  // namespace lockstep::cluster
