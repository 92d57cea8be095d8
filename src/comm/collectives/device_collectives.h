// Collectives that devices carry out themselves, over a backend of c10d that posts them to streams. All of a
// group run in one stream of its own: nobody on the host waits for any of them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <lockstep/base/export.h>
#include <lockstep/comm/reduce_op.h>

#include "comm/c10d.h"
#include "comm/collectives/collective.h"

namespace lockstep::detail {

/// A call that was posted.
class LOCKSTEP_API DeviceCall {
 public:
  DeviceCall(Collective collective, const c10::Stream& stream);
  ~DeviceCall();
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;

  /// All of it is in the stream.
  void note_posted() { done_->record(stream_); }

  /// Makes the current stream of this thread wait for the results.
  void order_outputs();
  /// Blocks until the results are there.
  void await_outputs();
  bool is_done() const { return done_->query(); }

  /// Happens when the results are there. Holds no tensors.
  const std::shared_ptr<c10::Event>& done() const { return done_; }

 private:
  void release_tensors();

  Collective collective_;  // its tensors are used by the stream until somebody waits
  c10::Stream stream_;
  std::shared_ptr<c10::Event> done_;
};

/// Posts the calls of one group. Not thread-safe.
class LOCKSTEP_API DeviceCollectives {
 public:
  using CountSent = std::function<void(std::int64_t bytes)>;

  /// `backend` is connected; `device` is this rank's.
  DeviceCollectives(c10::intrusive_ptr<c10d::Backend> backend, Reduction reduction, c10::Device device,
                    CountSent count_sent);

  /// Posts a checked call of this device's tensors behind what the current stream holds. Returns at once.
  std::shared_ptr<DeviceCall> post(const Collective& collective);

  // The table's column `run_on_devices`: on contiguous tensors, in the group's stream.
  void all_reduce(const Collective& collective);
  void all_reduce_list(const Collective& collective);
  void reduce(const Collective& collective);
  void broadcast(const Collective& collective);
  void all_gather(const Collective& collective);
  void all_gather_list(const Collective& collective);
  void gather(const Collective& collective);
  void scatter(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void all_to_all(const Collective& collective);
  void all_to_all_list(const Collective& collective);

 private:
  using Tensors = std::vector<at::Tensor>;

  bool is_native(const Collective& collective, at::ScalarType dtype) const;
  void reduce_all(const at::Tensor& tensor, ReduceOp op);
  at::Tensor reduced_chunk(const at::Tensor& tensor, ReduceOp op);
  at::Tensor gathered(const at::Tensor& part);
  void exchange(Tensors to, Tensors from);
  void order(const c10::intrusive_ptr<c10d::Work>& work) const;

  c10::intrusive_ptr<c10d::Backend> backend_;
  Reduction reduction_;
  c10::Stream stream_;
  CountSent count_sent_;
  std::int64_t rank_, size_;
};

/// reduce_rows() of the rows of a contiguous matrix, on any device: the same bits.
LOCKSTEP_API at::Tensor reduced_rows(const at::Tensor& rows, ReduceOp op);

}  // namespace lockstep::detail
