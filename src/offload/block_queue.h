// Blocks that wait for an engine.
#pragma once

#include <cstddef>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "offload/block.h"

namespace lockstep::offload {

/// First in, first out. Thread-safe. Once closed it fails what is in it, and what comes.
class BlockQueue {
 public:
  void push(std::span<Block> blocks) {
    std::unique_lock lock(mutex_);
    if (const int error_number = closed_by_) {
      lock.unlock();
      for (Block& block : blocks) block.fail(error_number);
      return;
    }
    waiting_.insert(waiting_.end(), std::make_move_iterator(blocks.begin()),
                    std::make_move_iterator(blocks.end()));
  }

  std::optional<Block> pop() {
    const std::scoped_lock lock(mutex_);
    if (waiting_.empty()) return {};
    std::optional<Block> first(std::move(waiting_.front()));
    waiting_.pop_front();
    return first;
  }

  void close(int error_number) {
    std::unique_lock lock(mutex_);
    closed_by_ = error_number;
    auto waiting = std::exchange(waiting_, {});
    lock.unlock();
    for (Block& block : waiting) block.fail(error_number);
  }

 private:
  std::mutex mutex_;  // guards the two below
  std::deque<Block> waiting_;
  int closed_by_ = 0;  // of errno
};

}  // namespace lockstep::offload
