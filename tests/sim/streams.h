// Streams: threads that run kernels in the order in which they were issued. All that is decided is decided
// when work is issued, under one mutex, so that it does not depend on when kernels run.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <ATen/core/Generator.h>

#include "sim/races.h"
#include "sim/sim.h"

namespace lockstep::sim {

constexpr int kCollectiveStream = 15;  // of a device; a communicator has one order for all its collectives
constexpr int kFirstLane = 16;  // of the streams on which graphs replay what was captured on side streams

inline int stream_id(const c10::Stream& s) {
  return s.device_index() * kStreamsPerDevice + static_cast<int>(s.id());
}
inline int device_of(int stream) { return stream / kStreamsPerDevice; }

/// Where a generator stood when the kernel was issued.
struct RandomState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

/// What differs from one issue of a kernel to the next.
struct Launch {
  RandomState random = {};
  void* arrives_at = nullptr;  ///< for a HostCopy that arrives: where its bytes go
  int threads = 1;             ///< that the issuing thread computes with, on which bits may depend
};

/// Pinned memory that a kernel reads, or fills when it `arrives`.
struct HostCopy {
  char* memory = nullptr;
  std::size_t bytes = 0;
  bool arrives = false;
};

struct Kernel {
  std::string op;
  std::vector<Span> spans = {};
  std::function<void(const Launch&)> body = {};
  at::Generator generator = {};  ///< that it draws from, or undefined
  std::optional<HostCopy> host_copy = {};
  bool frees = false;    ///< the allocator's own, at the end of a block's life
  bool is_peer = false;  ///< may touch memory of two devices
};

struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t issued = 0;  ///< number of the last record
  std::uint64_t done = 0;
  VectorClock clock{};
  int stream = 0;   ///< of the last record; guarded by Runtime::mutex
  int capture = 0;  ///< where the last record was captured, or 0
  std::size_t captured_record = 0;
};
using EventPtr = std::shared_ptr<Event>;

class StreamThread {
 public:
  StreamThread(int stream, const Options& options);
  void push(std::function<void()> task);
  void set_delays(std::uint64_t seed, std::chrono::microseconds longest);

  VectorClock clock{};  ///< of what comes next; guarded by Runtime::mutex

 private:
  [[noreturn]] void run();

  const int stream_;
  std::mutex mutex_;
  std::condition_variable has_tasks_;
  std::deque<std::function<void()>> tasks_;
  std::mt19937_64 random_;
  std::chrono::microseconds longest_delay_;
};

// The host's side. All of these may be called from any thread.
int current_device();
int exchange_device(int device);
int current_stream(int device);
int exchange_stream(int device, int number);

void enqueue(int stream, Kernel kernel);
void record(const EventPtr& event, int stream);
void wait_on_stream(const EventPtr& event, int stream);
/// Whether `stream` comes to know anything when it waits for the event. With Runtime::mutex held.
bool orders_anything(const EventPtr& event, int stream);
/// Whether the event has come to pass; the host then knows what happened before it.
bool query(const EventPtr& event);

/// To be called before the host waits. @throws c10::Error while work is being captured
void note_host_sync(const std::string& name);
/// @throws c10::Error when `stream` is being captured
void refuse_in_capture(int stream, const std::string& what);
void wait_for_event(const EventPtr& event);
void wait_for_stream(int stream);
/// The same without a word of failed kernels, for destructors.
void drain_stream(int stream) noexcept;
void wait_for_device(int device);
/// @throws c10::Error with what a kernel threw since the last call
void throw_failure();

// With Runtime::mutex held.
void issue(int stream, const Kernel& kernel, int graph = 0);
void issue_record(const EventPtr& event, int stream);
void issue_wait(const EventPtr& event, int stream);

}  // namespace lockstep::sim
