// What a backend implements: the private side of Communicator.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>

namespace lockstep::detail {

enum class CollectiveKind { kAllReduce, kBroadcast, kAllGather, kReduceScatter, kBarrier };

/// One call of a collective. In-place kinds use only `output`; barrier uses neither tensor.
struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  at::Tensor output = {};
  at::Tensor input = {};
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
};

/// The name that users know: "all_reduce".
const char* name_of(CollectiveKind kind);

/// The far end of a Work.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() = 0;
  virtual bool is_completed() const = 0;
};

/// A group of ranks. Collectives come in checked: CPU tensors without gradient, of fitting shapes.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string backend() const = 0;
  virtual std::chrono::milliseconds timeout() const = 0;
  virtual std::uint64_t bytes_sent() const = 0;
  virtual std::string activity() const = 0;
  virtual void run(const Collective& collective) = 0;
  virtual std::shared_ptr<Pending> start(const Collective& collective) = 0;
  virtual void close() = 0;
};

}  // namespace lockstep::detail
