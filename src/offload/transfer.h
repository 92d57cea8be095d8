// What is read or written in the background, as callers see it.
#pragma once

#include <memory>
#include <utility>

#include <lockstep/base/export.h>

namespace lockstep::offload {

class TransferState;

/// A read or write that was begun; the caller waits for it before it uses the memory again.
class LOCKSTEP_API Transfer {
 public:
  /// One that is done.
  Transfer() = default;
  explicit Transfer(std::shared_ptr<TransferState> state) : state_(std::move(state)) {}
  Transfer(Transfer&&) noexcept = default;
  /// Waits for the one that it was.
  Transfer& operator=(Transfer&& other) noexcept;
  /// Waits for it, as the memory may go now. An error is lost.
  ~Transfer();

  /// Whether wait() would return at once.
  bool is_done() const;
  /// Blocking. Says once what went wrong.
  /// @throws IoError naming file, offset, bytes and the system's reason
  void wait();

 private:
  std::shared_ptr<TransferState> state_;
};

}  // namespace lockstep::offload
