// Owns an instance of io_uring(7). The only file that sees liburing.
#pragma once

#include <liburing.h>

#include <cerrno>
#include <utility>

namespace lockstep::offload {

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

}  // namespace lockstep::offload
