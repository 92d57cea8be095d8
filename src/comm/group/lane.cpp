#include "comm/group/lane.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <stdexcept>

#include "base/system.h"

namespace lockstep::detail {
namespace {

using Body = std::function<void()>;

constexpr auto kIdle = std::chrono::seconds(2);  // starting a thread costs little more than waking one

class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

constexpr std::size_t kFewLanes = 16;

std::string place_of_group(const GroupIdentity& group) {
  if (group.name.empty()) return "";
  return " of group " + group.name + " (no. " + std::to_string(group.number) + ")";
}

}  // namespace

struct ProgressQueue::State {
  std::mutex mutex;  // guards all below
  std::condition_variable_any changed;
  std::deque<std::shared_ptr<Task>> queue;
  std::shared_ptr<Task> under_way;  // of the queue; run() has none where it found it empty
  bool is_busy = false;
  bool has_worker = false;
  std::exception_ptr closed;
  std::atomic<int> waiters{0};

  // These are called with the mutex held.
  std::shared_ptr<Task> enqueue(Body body);
  bool has_work() const { return !is_busy && !queue.empty(); }
  void run_front(std::unique_lock<std::mutex>& lock);
  std::exception_ptr run_unlocked(std::unique_lock<std::mutex>& lock, c10::function_ref<void()> body);
  void finish(Task& task, const std::exception_ptr& error);

  bool run_if_idle(c10::function_ref<void()> body);
  void wait(Task& task);
  bool is_done(const Task& task);
  void rely_on(Task& task);
  bool owes() const;
  void finish_relied_on();
  bool close(const std::exception_ptr& reason);
  void work(const std::stop_token& stop);
};

std::shared_ptr<ProgressQueue::Task> ProgressQueue::State::enqueue(Body body) {
  if (closed) std::rethrow_exception(closed);
  auto task = std::make_shared<Task>();
  task->body_ = std::move(body);
  queue.push_back(task);
  return task;
}

void ProgressQueue::State::run_front(std::unique_lock<std::mutex>& lock) {
  const auto task = under_way = queue.front();
  queue.pop_front();
  const auto error = run_unlocked(lock, task->body_);
  under_way = nullptr;
  finish(*task, error);
}

// Returns what `body` threw, or null.
std::exception_ptr ProgressQueue::State::run_unlocked(std::unique_lock<std::mutex>& lock,
                                                      c10::function_ref<void()> body) {
  is_busy = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    body();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  is_busy = false;
  return error && closed ? closed : error;
}

// Frees the body first: what it captured may be the last reference to a tensor.
void ProgressQueue::State::finish(Task& task, const std::exception_ptr& error) {
  task.body_ = nullptr;
  task.error_ = error;
  task.is_done_ = true;
  changed.notify_all();
}

// Without memory for a task. Returns whether `body` was run.
bool ProgressQueue::State::run_if_idle(c10::function_ref<void()> body) {
  const Counted waiter(waiters);
  std::unique_lock lock(mutex);
  if (closed) std::rethrow_exception(closed);
  if (is_busy || !queue.empty()) return false;
  const auto error = run_unlocked(lock, body);
  changed.notify_all();
  if (error) std::rethrow_exception(error);
  return true;
}

void ProgressQueue::State::wait(Task& task) {
  const Counted waiter(waiters);
  std::unique_lock lock(mutex);
  while (!task.is_done_) {
    if (has_work()) {
      run_front(lock);
    } else {
      changed.wait(lock, [&] { return task.is_done_ || has_work(); });
    }
  }
  if (task.error_) std::rethrow_exception(task.error_);
}

bool ProgressQueue::State::is_done(const Task& task) {
  const std::lock_guard lock(mutex);
  return task.is_done_;
}

void ProgressQueue::State::rely_on(Task& task) {
  const std::lock_guard lock(mutex);
  task.is_relied_on_ = true;
}

// With the mutex held.
bool ProgressQueue::State::owes() const {
  return (under_way && under_way->is_relied_on_) ||
         std::ranges::any_of(queue, [](const auto& task) { return task->is_relied_on_; });
}

void ProgressQueue::State::finish_relied_on() {
  const Counted waiter(waiters);
  std::unique_lock lock(mutex);
  while (owes()) {
    if (has_work()) {
      run_front(lock);
    } else {
      changed.wait(lock, [&] { return !owes() || has_work(); });
    }
  }
}

bool ProgressQueue::State::close(const std::exception_ptr& reason) {
  const std::lock_guard lock(mutex);
  if (!closed) closed = reason;
  for (const auto& task : std::exchange(queue, {})) finish(*task, closed);
  return is_busy;
}

void ProgressQueue::State::work(const std::stop_token& stop) {
  ::pthread_setname_np(::pthread_self(), "ls_progress");
  ask_for_short_time_slices();
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    if (changed.wait_for(lock, stop, kIdle, [&] { return has_work(); })) {
      run_front(lock);
    } else if (!is_busy) {
      break;
    }
  }
  has_worker = false;
}

ProgressQueue::ProgressQueue() : state_(std::make_shared<State>()) {}

ProgressQueue::~ProgressQueue() {
  close(std::make_exception_ptr(std::logic_error("the queue is gone")));
  join();
}

std::shared_ptr<ProgressQueue::Task> ProgressQueue::push(Body body) {
  home_.require();
  const std::lock_guard lock(state_->mutex);
  auto task = state_->enqueue(std::move(body));
  if (!std::exchange(state_->has_worker, true)) {
    // One that ended is joined.
    thread_ = std::jthread([state = state_](const std::stop_token& stop) { state->work(stop); });
  }
  state_->changed.notify_all();
  return task;
}

void ProgressQueue::run(c10::function_ref<void()> body) {
  home_.require();
  if (state_->run_if_idle(body)) return;
  std::shared_ptr<Task> task;
  {
    const std::lock_guard lock(state_->mutex);
    task = state_->enqueue([&] { body(); });
  }
  state_->wait(*task);
}

void ProgressQueue::wait(Task& task) {
  home_.require();
  state_->wait(task);
}

bool ProgressQueue::is_done(const Task& task) const { return state_->is_done(task); }

void ProgressQueue::rely_on(Task& task) { state_->rely_on(task); }

void ProgressQueue::finish_relied_on() { state_->finish_relied_on(); }

bool ProgressQueue::is_awaited() const { return state_->waiters > 0; }

bool ProgressQueue::is_idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->queue.empty() && !state_->is_busy;
}

bool ProgressQueue::close(std::exception_ptr reason) { return state_->close(reason); }

void ProgressQueue::join() {
  {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return !state_->is_busy; });
  }
  thread_.request_stop();
  if (thread_.get_id() == std::this_thread::get_id()) return thread_.detach();
  if (thread_.joinable()) thread_.join();
}

Lane::Lane(const GroupIdentity& group)
    : id(group.id),
      barrier_id(id_of_monitored_barrier(group)),
      members(group.global_ranks),
      place(place_of_group(group)),
      issued_(std::make_shared<Count>(0)) {}

Lane::Lane(const GroupIdentity& group, const Collective& message, std::shared_ptr<Count> issued)
    : issued_(std::move(issued)) {
  const bool is_send = message.kind == CollectiveKind::kSend;
  const int own = group.global_rank(), other = group.global_rank(message.root);
  members = is_send ? std::vector{own, other} : std::vector{other, own};
  id = id_of_messages(group, members[0], members[1], message.tag);
  place = " from rank " + std::to_string(members[0]) + " to rank " + std::to_string(members[1]) +
          (message.tag == 0 ? "" : ", tag " + std::to_string(message.tag)) + place_of_group(group);
  partner = (is_send ? " to rank " : " from rank ") + std::to_string(other);
}

void Lane::begin(const char* name) {
  sequence = ++*issued_;
  activity = name;
}

std::string Lane::activity_text() const {
  const char* const name = activity;
  return name ? name + partner + " seq " + std::to_string(sequence) : "";
}

std::shared_ptr<Lane> MessageLanes::of(const Collective& message) {
  std::vector<std::shared_ptr<Lane>> idle;  // freed, which may take a moment, after the lock
  const std::lock_guard lock(mutex_);
  if (lanes_.size() >= most_) idle = take_idle();
  auto& lane = lanes_[{message.root, message.kind, message.tag}];
  if (lane) return lane;
  auto& issued = issued_[{message.root, message.kind}];
  if (!issued) issued = std::make_shared<Lane::Count>(0);
  lane = std::make_shared<Lane>(identity_, message, issued);
  if (closed_) lane->queue.close(closed_);
  if (on_new_) on_new_(lane);
  return lane;
}

// The lanes that nobody else holds; the lock keeps others from getting one meanwhile.
std::vector<std::shared_ptr<Lane>> MessageLanes::take_idle() {
  std::vector<std::shared_ptr<Lane>> idle;
  std::erase_if(lanes_, [&](const auto& each) {
    const auto& lane = each.second;
    if (lane.use_count() > 1 || !lane->queue.is_idle()) return false;
    if (on_end_) on_end_(lane);
    idle.push_back(lane);
    return true;
  });
  most_ = std::max(kFewLanes, 2 * lanes_.size());
  return idle;
}

std::vector<std::shared_ptr<Lane>> MessageLanes::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Lane>> all;
  for (const auto& [key, lane] : lanes_) all.push_back(lane);
  return all;
}

void MessageLanes::close(std::exception_ptr reason) {
  const std::lock_guard lock(mutex_);
  closed_ = std::move(reason);
}

}  // namespace lockstep::detail
