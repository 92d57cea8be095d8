// One thread fills the ring from the queue and takes what is done out of it. It sleeps in the kernel until a
// block is done or, by a read of an eventfd that is always under way, until there are new ones in the queue.
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <liburing.h>

#include <lockstep/base/unique_fd.h>

#include "base/format.h"
#include "offload/io_engine.h"

namespace lockstep::offload {
namespace {

// Owns an instance of io_uring(7). No other file includes liburing.
class Uring {
 public:
  /// 0, or an errno where the system has no io_uring that reads and writes (it came with Linux 5.6), or
  /// forbids it.
  int open(unsigned entries) {
    const int failure = ::io_uring_queue_init(entries, &ring_, 0);
    if (failure < 0) return -failure;
    is_open_ = true;
    return can_read_and_write() ? 0 : ENOSYS;
  }
  Uring() = default;
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;
  ~Uring() { close(); }

  void close() {
    if (std::exchange(is_open_, false)) ::io_uring_queue_exit(&ring_);
  }
  io_uring* get() { return &ring_; }

 private:
  bool can_read_and_write() {
    io_uring_probe* probe = ::io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return false;
    const bool can = ::io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                     ::io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    ::io_uring_free_probe(probe);
    return can;
  }

  io_uring ring_{};
  bool is_open_ = false;
};

constexpr int kMostTries = 10'000;  // a millisecond each
constexpr auto kLastWait =
    std::chrono::seconds(5);  // the time for blocks in the kernel to end when the ring fails

class UringEngine final : public IoEngine {
 public:
  UringEngine(int fd, const SwapOptions& options, std::unique_ptr<Uring> ring, UniqueFd wake);
  UringEngine(const UringEngine&) = delete;
  UringEngine& operator=(const UringEngine&) = delete;
  ~UringEngine() override;

  std::string_view name() const override { return "io_uring"; }

  void submit(std::span<Block> blocks) override {
    queue_.push(blocks);
    wake();
  }

 private:
  void run();
  void wake() const { (void)::eventfd_write(wake_.get(), 1); }
  void arm_wake();
  void refill();
  void give(std::size_t slot);
  bool may_pass(int error_number);
  void reap();
  void completed(std::size_t slot, int result);
  void give_up(int error_number);

  const int fd_;
  const bool single_submit_, overlap_events_;
  const std::unique_ptr<Uring> ring_;
  const UniqueFd wake_;
  BlockQueue queue_;
  std::atomic<bool> stopping_ = false;

  // Used by the engine's thread alone.
  std::vector<Block> slots_;  // blocks that the ring has, by the number that it has for them
  std::vector<std::size_t> free_slots_;
  std::uint64_t wakes_ = 0;  // what is read from the eventfd
  bool is_wake_armed_ = false;
  int tries_ = 0;  // in a row that the kernel had no memory for

  std::jthread thread_;  // last: joined before what it uses goes
};

UringEngine::UringEngine(int fd, const SwapOptions& options, std::unique_ptr<Uring> ring, UniqueFd wake)
    : fd_(fd),
      single_submit_(options.single_submit),
      overlap_events_(options.overlap_events),
      ring_(std::move(ring)),
      wake_(std::move(wake)),
      slots_(static_cast<std::size_t>(options.queue_depth)) {
  for (std::size_t slot = slots_.size(); slot-- > 0;) free_slots_.push_back(slot);
  thread_ = std::jthread([this] { run(); });
}

UringEngine::~UringEngine() {
  stopping_ = true;
  wake();
}

void UringEngine::run() {
  for (;;) {
    const bool is_last = stopping_;  // read before the queue, which gets no more blocks after that
    arm_wake();
    refill();
    const bool is_idle = free_slots_.size() == slots_.size();
    if (is_last && is_idle) return;
    const int result = ::io_uring_submit_and_wait(ring_->get(), 1);
    if (result < 0 && !may_pass(-result)) return give_up(-result);
    reap();
  }
}

// Whether the error may pass: when the kernel is out of memory for the moment, completed blocks free some.
bool UringEngine::may_pass(int error_number) {
  if (error_number == EINTR) return true;
  if ((error_number != EAGAIN && error_number != EBUSY) || ++tries_ == kMostTries) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return true;
}

void UringEngine::arm_wake() {
  if (is_wake_armed_) return;
  io_uring_sqe* const entry = ::io_uring_get_sqe(ring_->get());
  ::io_uring_prep_read(entry, wake_.get(), &wakes_, sizeof wakes_, 0);
  entry->user_data = slots_.size();
  is_wake_armed_ = true;
}

void UringEngine::refill() {
  if (!overlap_events_ && free_slots_.size() < slots_.size()) return;
  while (!free_slots_.empty()) {
    auto block = queue_.pop();
    if (!block) return;
    const auto slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot] = std::move(*block);
    give(slot);
    if (single_submit_)
      (void)::io_uring_submit(ring_->get());  // entries that were not accepted are submitted before the wait
  }
}

void UringEngine::give(std::size_t slot) {
  const Block& block = slots_[slot];
  io_uring_sqe* const entry = ::io_uring_get_sqe(ring_->get());  // as many as slots, and one
  const auto bytes = static_cast<unsigned>(block.bytes);
  if (block.transfer->direction() == Direction::kRead) {
    ::io_uring_prep_read(entry, fd_, block.data, bytes, block.offset);
  } else {
    ::io_uring_prep_write(entry, fd_, block.data, bytes, block.offset);
  }
  entry->user_data = slot;
}

void UringEngine::reap() {
  io_uring_cqe* entry = nullptr;
  while (::io_uring_peek_cqe(ring_->get(), &entry) == 0) {
    tries_ = 0;
    const auto slot = static_cast<std::size_t>(entry->user_data);
    const int result = entry->res;
    ::io_uring_cqe_seen(ring_->get(), entry);
    completed(slot, result);
  }
}

void UringEngine::completed(std::size_t slot, int result) {
  if (slot == slots_.size()) {
    is_wake_armed_ = false;
  } else if (slots_[slot].advance(result)) {
    slots_[slot] = {};
    free_slots_.push_back(slot);
  } else {
    give(slot);
  }
}

// Waits for the blocks that the kernel has before they fail, since their memory may be freed after that.
void UringEngine::give_up(int error_number) {
  queue_.close(error_number);
  wake();  // so that the read of the eventfd ends as well
  const auto in_kernel = [&] {
    return slots_.size() - free_slots_.size() + (is_wake_armed_ ? 1 : 0) - ::io_uring_sq_ready(ring_->get());
  };
  const auto deadline = std::chrono::steady_clock::now() + kLastWait;
  while (in_kernel() > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    reap();
  }
  ring_->close();
  for (Block& block : slots_)
    if (block.transfer) block.fail(error_number);
}

}  // namespace

Expected<std::unique_ptr<IoEngine>> make_uring_engine(int fd, const SwapOptions& options) try {
  auto ring = std::make_unique<Uring>();
  int failure = ring->open(static_cast<unsigned>(options.queue_depth) + 1);
  UniqueFd wake(failure == 0 ? ::eventfd(0, EFD_CLOEXEC) : -1);
  if (failure == 0 && !wake) failure = errno;
  if (failure != 0) return Unexpected{detail::system_error_text(failure)};
  return std::unique_ptr<IoEngine>(
      std::make_unique<UringEngine>(fd, options, std::move(ring), std::move(wake)));
} catch (const std::system_error& error) {
  return Unexpected{std::string("no thread for it: ") + error.what()};
}

}  // namespace lockstep::offload
