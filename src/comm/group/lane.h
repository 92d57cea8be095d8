// A lane: operations of a group that must keep their order among each other, and the queue that runs them.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/util/FunctionRef.h>
#include <lockstep/base/export.h>

#include "comm/collectives/collective.h"
#include "comm/fork_guard.h"
#include "comm/group/group.h"

namespace lockstep::detail {

/// A queue that runs operations strictly in the order of their issue.
///
/// Gloo tags messages by issue order and an ordered all-reduce is two exchanges, so the collectives of one
/// group may never overlap. The queue has no fixed worker: whoever waits for an operation runs the queue
/// itself, and a blocking call that finds the queue idle never changes thread. The progress thread, started
/// by an asynchronous operation, does what nobody waits for, and ends when there has been nothing to do for a
/// while.
class LOCKSTEP_API ProgressQueue {
  struct State;

 public:
  /// An operation, its state guarded by the queue's mutex.
  class Task {
    friend struct State;
    std::function<void()> body_;
    std::exception_ptr error_;
    bool is_done_ = false;
    bool is_relied_on_ = false;
  };

  ProgressQueue();
  /// May run in the progress thread itself: an operation may hold the last owner of the queue.
  ~ProgressQueue();
  ProgressQueue(const ProgressQueue&) = delete;
  ProgressQueue& operator=(const ProgressQueue&) = delete;

  // Those that take an operation, or wait for one, @throw CommError in a forked child.

  /// Queues `body`.
  std::shared_ptr<Task> push(std::function<void()> body);

  /// Runs `body` after all that was pushed before, in this thread, and returns when it is done.
  /// Throws what it threw.
  void run(c10::function_ref<void()> body);

  /// Blocks until `task` is done, running the queue meanwhile. Throws what the task threw.
  void wait(Task& task);

  bool is_done(const Task& task) const;

  /// Whoever issued `task` goes on as if it was done, as a device waits for it: it must not be given up.
  void rely_on(Task& task);
  /// Blocks until nothing that is relied on is queued or under way in another thread, running the queue
  /// meanwhile. Does not throw what tasks threw.
  void finish_relied_on();

  /// Whether a thread is in run() or wait().
  bool is_awaited() const;

  /// Whether nothing is queued or under way.
  bool is_idle() const;

  /// Fails what has not begun, and all later operations, with `reason`; so does the operation under way
  /// if it throws. Returns whether there is one.
  bool close(std::exception_ptr reason);

  /// After close(): waits for the operation under way, in whichever thread, and ends the progress thread.
  void join();

 private:
  // Shared with the progress thread, which may be the one that ends the queue.
  const std::shared_ptr<State> state_;
  HomeProcess home_;
  std::jthread thread_;
};

/// Operations that must keep their order among each other.
///
/// The collectives of a group share one lane. Messages do not use it: two ranks that each send first and
/// receive then would wait for each other for ever. Each (other rank, direction, tag) has a lane of its own,
/// which is the order that Gloo keeps, too.
struct LOCKSTEP_API Lane {
  using Count = std::atomic<std::uint64_t>;

  /// That of the collectives of a group.
  explicit Lane(const GroupIdentity& group);
  /// That of `message` and its like; `issued` counts the messages to, or from, that rank.
  Lane(const GroupIdentity& group, const Collective& message, std::shared_ptr<Count> issued);

  bool is_of_messages() const { return !partner.empty(); }

  /// The next operation begins; until end() it is this lane's activity.
  void begin(const char* name);
  void end() { activity = nullptr; }
  /// "all_reduce seq 7", "send to rank 2 seq 1"; "" when nothing is under way.
  std::string activity_text() const;

  ProgressQueue queue;
  std::uint64_t id = 0;           ///< tells the lanes of a job apart; the same on all members
  std::uint64_t barrier_id = 0;   ///< of collectives: where monitored barriers meet
  std::vector<int> members = {};  ///< global ranks that meet in it
  std::string place = {};         ///< " of group {0, 2}", " from rank 0 to rank 2"; the same on all members
  std::string partner = {};       ///< " to rank 2"; empty for collectives
  Count sequence{0};              ///< of the operation that began last, from 1
  Count announced{0};  ///< collectives that all members meet for; a monitored barrier may lack some
  std::atomic<bool> has_said_goodbye{false};   ///< the members know that nothing more comes
  std::atomic<bool> is_closing{false};         ///< what waits for peers shall not
  std::atomic<const char*> activity{nullptr};  ///< name of the operation under way

 private:
  std::shared_ptr<Count> issued_;
};

/// The lanes of messages: made when used, freed when idle.
class LOCKSTEP_API MessageLanes {
 public:
  using OnLane = std::function<void(const std::shared_ptr<Lane>&)>;
  /// `on_new` is called with each new lane, `on_end` when it goes. Under a lock.
  explicit MessageLanes(GroupIdentity identity, OnLane on_new = {}, OnLane on_end = {})
      : identity_(std::move(identity)), on_new_(std::move(on_new)), on_end_(std::move(on_end)) {}

  /// The lane of `message`, which lives for as long as somebody holds it or it is at work.
  std::shared_ptr<Lane> of(const Collective& message);

  /// Those that there are.
  std::vector<std::shared_ptr<Lane>> all() const;

  /// Lanes that are made from now on are closed, for `reason`.
  void close(std::exception_ptr reason);

 private:
  using Direction = std::pair<int, CollectiveKind>;  // the other rank, send or receive
  using Key = std::tuple<int, CollectiveKind, int>;  // and tag

  std::vector<std::shared_ptr<Lane>> take_idle();

  GroupIdentity identity_;
  OnLane on_new_;
  OnLane on_end_;
  mutable std::mutex mutex_;  // guards all below
  std::map<Key, std::shared_ptr<Lane>> lanes_;
  std::map<Direction, std::shared_ptr<Lane::Count>> issued_;
  std::size_t most_ = 16;  // lanes before the idle ones are looked for
  std::exception_ptr closed_;
};

}  // namespace lockstep::detail
