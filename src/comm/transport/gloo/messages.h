// Messages between ranks through a c10d backend.
#pragma once

#include <ATen/core/Tensor.h>

#include "comm/c10d.h"
#include "comm/transport/gloo/interruptible.h"

namespace lockstep::detail {

/// A contiguous tensor's memory.
at::Tensor as_bytes(const at::Tensor& tensor);

/// From one rank to another those of a tag arrive in the order in which they were sent, in what was posted
/// for them in that order. Thread-safe.
class Messages {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  /// Borrows both.
  Messages(c10d::Backend& backend, Interruptible& waits) : backend_(backend), waits_(waits) {}

  int rank() const { return backend_.getRank(); }
  int size() const { return backend_.getSize(); }

  /// These two take contiguous tensors and return at once; the Work holds the tensor.
  Work send(const at::Tensor& tensor, int dst, int tag);
  Work recv(const at::Tensor& tensor, int src, int tag);
  /// Blocking. @throws what the message failed with
  void await(const Work& work) { waits_.await_message(work); }

 private:
  c10d::Backend& backend_;
  Interruptible& waits_;
};

}  // namespace lockstep::detail
