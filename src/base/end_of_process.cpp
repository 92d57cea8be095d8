#include "base/end_of_process.h"

#include <unistd.h>

#include <mutex>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace {

class EndOfProcess {
 public:
  ~EndOfProcess() { run(); }

  void add(std::function<void()> act) {
    const std::scoped_lock lock(mutex_);
    acts_.emplace_back(::getpid(), std::move(act));
  }

  void run() {
    std::unique_lock lock(mutex_);
    auto acts = std::exchange(acts_, {});
    lock.unlock();
    for (auto act = acts.rbegin(); act != acts.rend(); ++act) {
      if (act->first == ::getpid()) act->second();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<pid_t, std::function<void()>>> acts_;  // by process
};

EndOfProcess& end() {
  static EndOfProcess end;
  return end;
}

}  // namespace

void at_end_of_process(std::function<void()> act) { end().add(std::move(act)); }

void end_of_process() { end().run(); }

}  // namespace lockstep::detail
