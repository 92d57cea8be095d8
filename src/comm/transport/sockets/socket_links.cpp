#include "comm/transport/sockets/socket_links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>

#include "base/format.h"
#include "base/system.h"
#include "comm/waiting.h"

namespace lockstep::detail {
namespace {

using std::chrono::steady_clock;

constexpr auto kSpin = std::chrono::microseconds(50);  // sleeping and waking cost as much
constexpr auto kNap = std::chrono::milliseconds(1000);

int poll_time(Deadline until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, kNap.count()));
}

// While it lives, a thread counts as one that waits. However it ends, another one goes on watching.
class Waits {
 public:
  Waits(int& waiting, std::condition_variable& others) : waiting_(waiting), others_(others) { ++waiting_; }
  ~Waits() {
    if (--waiting_ > 0) others_.notify_all();
  }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

 private:
  int& waiting_;
  std::condition_variable& others_;
};

UniqueFd open_event() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event && errno == EMFILE) throw too_many_open_files("no eventfd can be opened");
  if (!event) throw std::runtime_error("no eventfd can be opened: " + system_error_text(errno));
  return event;
}

}  // namespace

SocketLinks::SocketLinks(std::vector<UniqueFd> sockets, const Options& options)
    : timeout_(bounded(options.timeout)), wake_(open_event()), fork_guard_([this] {
        for (const int each : descriptors_) ::close(each);
      }) {
  for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
    auto& socket = sockets[rank];
    if (socket) descriptors_.push_back(socket.get());
    links_.push_back(socket ? std::make_unique<SocketLink>(std::move(socket), options.names[rank]) : nullptr);
  }
  descriptors_.push_back(wake_.get());
  polled_.resize(links_.size() + 1);
}

SocketLinks::~SocketLinks() = default;

// What is posted may go at once. Otherwise the thread that watches must know of it.
template <class Post>
void SocketLinks::post_and_start(int rank, const Post& post) {
  const std::lock_guard lock(mutex_);
  auto& to = *link(rank);
  const auto before = to.events();
  post(to);
  if ((before & POLLOUT) == 0) to.write();
  if (is_watched_ && (to.events() & ~before) != 0) wake();
}

void SocketLinks::post(int rank, const SocketSend& send) {
  post_and_start(rank, [&](SocketLink& to) { to.post(send); });
}

void SocketLinks::post(int rank, std::uint32_t stream, const SocketReceive& receive) {
  post_and_start(rank, [&](SocketLink& from) { from.post(stream, receive); });
}

void SocketLinks::wait(SocketCall& call, c10::function_ref<bool()> is_over) {
  Lock lock(mutex_);
  const Waits waits(waiting_, has_moved_);
  auto moved = call.moved;
  auto last_move = steady_clock::now();
  for (;;) {
    if (is_aborted_) throw std::runtime_error("Socket closed: the transport was aborted");
    if (!call.failure.empty()) throw std::runtime_error(call.failure);
    if (is_over()) break;
    const auto now = steady_clock::now();
    if (std::exchange(moved, call.moved) != call.moved) last_move = now;
    if (now - last_move >= timeout_) throw std::runtime_error("Timed out waiting for " + awaited_by(call));
    const auto deadline = last_move + timeout_;
    if (is_watched_)
      has_moved_.wait_until(lock, std::min(deadline, now + kNap));
    else
      drive(lock, now < last_move + kSpin ? now : deadline);
  }
}

void SocketLinks::drive(Lock& lock, Deadline until) {
  watch();
  is_watched_ = true;
  lock.unlock();
  const int ready = ::poll(polled_.data(), polled_.size(), poll_time(until));
  lock.lock();
  is_watched_ = false;
  if (ready <= 0) return;
  if (polled_.back().revents != 0) {
    std::uint64_t wakes = 0;
    (void)!::read(wake_.get(), &wakes, sizeof wakes);
  }
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    if (polled_[rank].fd < 0 || polled_[rank].revents == 0) continue;
    links_[rank]->read();
    links_[rank]->write();
  }
  if (waiting_ > 1) has_moved_.notify_all();
}

// A connection of which nothing is wanted is left out: poll() would tell of its end again and again.
void SocketLinks::watch() {
  for (std::size_t rank = 0; rank < links_.size(); ++rank) {
    const short events = links_[rank] ? links_[rank]->events() : short{0};
    polled_[rank] = {.fd = events == 0 ? -1 : links_[rank]->fd(), .events = events, .revents = 0};
  }
  polled_.back() = {.fd = wake_.get(), .events = POLLIN, .revents = 0};
}

void SocketLinks::wake() const {
  const std::uint64_t once = 1;
  (void)!::write(wake_.get(), &once, sizeof once);
}

std::string SocketLinks::awaited_by(const SocketCall& call) const {
  std::string text;
  for (const auto& link : links_)
    if (link && link->has(call)) text += (text.empty() ? "" : ", ") + link->peer();
  return text;
}

void SocketLinks::give_up(SocketCall& call) noexcept {
  const Lock lock(mutex_);
  if (call.pending == 0) return;
  abort();
  for (const auto& link : links_)
    if (link) link->drop(call);
}

// The sockets end before their copies in `descriptors_` do: these are closed with this object alone.
void SocketLinks::abort() {
  is_aborted_ = true;
  for (const int each : descriptors_)
    if (each != wake_.get()) ::shutdown(each, SHUT_RDWR);
  wake();
}

}  // namespace lockstep::detail
