#include "sim/streams.h"

#include <algorithm>
#include <set>
#include <thread>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "sim/capture.h"
#include "sim/generator.h"
#include "sim/runtime.h"

namespace lockstep::sim {
namespace {

thread_local int device_of_thread = 0;
thread_local std::array<int, kMaxDevices> streams_of_thread{};

std::uint64_t seed_of(int stream, std::uint64_t seed) {
  return seed * 7919 + static_cast<std::uint64_t>(stream);
}

void run_kernel(const std::function<void()>& body) try { body(); } catch (const std::exception& error) {
  const std::lock_guard lock(runtime().mutex);
  if (runtime().failure.empty()) runtime().failure = error.what();
}

// `named` are the accesses that the kernel was reported for.
void check_block(const Kernel& kernel, const Span& span, int stream, const Block* block, int graph,
                 std::set<std::pair<int, std::uint64_t>>& named) {
  if (block == nullptr || !(block->is_live || (graph != 0 && block->graph == graph)))
    return report("use after free: " + kernel.op + " on " + stream_name(stream) +
                  " uses memory that was freed before it was issued");
  if (block->device != kHostDevice && block->device != device_of(stream) && !kernel.is_peer)
    report("wrong device: " + kernel.op + " on " + stream_name(stream) +
           " uses memory of sim:" + std::to_string(block->device) + "; a device guard is missing");
  for (const auto& earlier : block->history.unordered(span, stream, stream_thread(stream).clock)) {
    if (named.emplace(earlier.stream, earlier.number).second)
      report(describe_race(kernel.op, kernel.frees, span, stream, earlier));
  }
}

[[noreturn]] void refuse_captured(const std::string& why) {
  runtime().capture->refuse(why);
  TORCH_CHECK(false, "sim: operation not permitted when stream is capturing: ", why);
}

void know(const VectorClock& clock) {
  join(runtime().host, clock);
  runtime().host_copies.settle();
}

}  // namespace

StreamThread::StreamThread(int stream, const Options& options)
    : stream_(stream), random_(seed_of(stream, options.seed)), longest_delay_(options.longest_delay) {
  std::thread([this] { run(); }).detach();
}

void StreamThread::push(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  has_tasks_.notify_one();
}

void StreamThread::set_delays(std::uint64_t seed, std::chrono::microseconds longest) {
  const std::lock_guard lock(mutex_);
  random_.seed(seed_of(stream_, seed));
  longest_delay_ = longest;
}

void StreamThread::run() {
  for (;;) {
    std::function<void()> task;
    std::chrono::microseconds delay{0};
    {
      std::unique_lock lock(mutex_);
      has_tasks_.wait(lock, [&] { return !tasks_.empty(); });
      task = std::move(tasks_.front());
      tasks_.pop_front();
      if (longest_delay_.count() > 0)
        delay = std::chrono::microseconds(random_() % static_cast<std::uint64_t>(longest_delay_.count()));
    }
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    run_kernel(task);
  }
}

int current_device() { return device_of_thread; }
int exchange_device(int device) { return std::exchange(device_of_thread, device); }
int current_stream(int device) { return device * kStreamsPerDevice + streams_of_thread[device]; }
int exchange_stream(int device, int number) { return std::exchange(streams_of_thread[device], number); }

void issue(int stream, const Kernel& kernel, int graph) {
  auto& all = runtime();
  auto& thread = stream_thread(stream);
  join(thread.clock, all.host);
  const auto number = ++thread.clock[stream];
  ++all.counters.kernels;
  if (all.trace)
    all.trace->push_back({.op = kernel.op,
                          .stream = stream % kStreamsPerDevice,
                          .number = number,
                          .before = {thread.clock.begin(), thread.clock.end()},
                          .place = static_cast<std::size_t>(stream)});
  std::vector<std::shared_ptr<Arrival>> before;
  std::set<std::pair<int, std::uint64_t>> named;
  for (const auto& span : kernel.spans) {
    auto* const block = find_block(span.begin);
    check_block(kernel, span, stream, block, graph, named);
    if (block == nullptr || block->device != kHostDevice) continue;
    for (auto& arrival : all.host_copies.before(span)) before.push_back(std::move(arrival));
    if (span.is_written && !kernel.host_copy) all.host_copies.add_ordered_write(span, stream, number);
  }
  for (const auto& span : kernel.spans) {
    if (auto* const block = find_block(span.begin))
      block->history.add({.span = span, .stream = stream, .number = number, .op = kernel.op});
  }
  Launch launch{.threads = at::get_num_threads()};
  if (kernel.generator.defined()) launch.random = next_state(kernel.generator);
  std::shared_ptr<Arrival> arrival;
  if (kernel.host_copy && kernel.host_copy->arrives) {
    arrival = all.host_copies.add_arrival(*kernel.host_copy, stream, number);
    launch.arrives_at = arrival->staging();
  } else if (kernel.host_copy) {
    all.host_copies.add_departure(*kernel.host_copy, kernel.op, stream, number);
  }
  thread.push([body = kernel.body, launch, before = std::move(before), arrival = std::move(arrival)] {
    for (const auto& earlier : before) earlier->land();
    if (at::get_num_threads() != launch.threads) at::set_num_threads(launch.threads);
    body(launch);
    if (arrival) arrival->mark_filled();
  });
}

void issue_record(const EventPtr& event, int stream) {
  auto& thread = stream_thread(stream);
  join(thread.clock, runtime().host);
  std::uint64_t version = 0;
  {
    const std::lock_guard lock(event->mutex);
    version = ++event->issued;
    event->clock = thread.clock;
    event->capture = 0;
  }
  thread.push([event, version] {
    {
      const std::lock_guard lock(event->mutex);
      event->done = std::max(event->done, version);
    }
    event->changed.notify_all();
  });
}

void issue_wait(const EventPtr& event, int stream) {
  auto& thread = stream_thread(stream);
  std::uint64_t version = 0;
  {
    const std::lock_guard lock(event->mutex);
    version = event->issued;
    join(thread.clock, event->clock);
  }
  thread.push([event, version] {
    std::unique_lock lock(event->mutex);
    event->changed.wait(lock, [&] { return event->done >= version; });
  });
}

void enqueue(int stream, Kernel kernel) {
  const std::lock_guard lock(runtime().mutex);
  if (is_captured(stream)) return runtime().capture->add(stream, std::move(kernel));
  issue(stream, kernel);
}

void record(const EventPtr& event, int stream) {
  const std::lock_guard lock(runtime().mutex);
  event->stream = stream;
  if (is_captured(stream)) return runtime().capture->add_record(event, stream);
  issue_record(event, stream);
}

void wait_on_stream(const EventPtr& event, int stream) {
  auto& all = runtime();
  const std::lock_guard lock(all.mutex);
  const bool is_of_capture = event->capture != 0;
  if (is_captured(stream) || (is_of_capture && all.capture && all.capture->id() == event->capture))
    return all.capture->add_wait(event, stream);
  TORCH_CHECK(!is_of_capture, "sim: ", stream_name(stream),
              " waits for an event that was recorded in a graph");
  issue_wait(event, stream);
}

bool orders_anything(const EventPtr& event, int stream) {
  auto& all = runtime();
  if (all.capture && event->capture == all.capture->id()) return all.capture->orders_anything(*event, stream);
  auto known = stream_thread(stream).clock;
  join(known, all.host);
  auto together = known;
  const std::lock_guard lock(event->mutex);
  join(together, event->clock);
  return together != known;
}

bool query(const EventPtr& event) {
  const std::lock_guard lock(runtime().mutex);
  TORCH_CHECK(event->capture == 0, "sim: an event that was recorded in a graph cannot be queried");
  {
    const std::lock_guard of_event(event->mutex);
    if (event->done < event->issued) return false;
  }
  know(event->clock);
  return true;
}

void note_host_sync(const std::string& name) {
  auto& all = runtime();
  const std::lock_guard lock(all.mutex);
  if (all.capture) refuse_captured(name + " makes the host wait");
  all.host_syncs.push_back(name);
}

void refuse_in_capture(int stream, const std::string& what) {
  const std::lock_guard lock(runtime().mutex);
  if (is_captured(stream)) refuse_captured(what);
}

namespace {

void await(const EventPtr& event) {
  VectorClock clock{};
  {
    std::unique_lock lock(event->mutex);
    const auto version = event->issued;
    clock = event->clock;
    event->changed.wait(lock, [&] { return event->done >= version; });
  }
  {
    const std::lock_guard lock(runtime().mutex);
    know(clock);
  }
}

}  // namespace

void wait_for_event(const EventPtr& event) {
  await(event);
  throw_failure();
}

void drain_stream(int stream) noexcept {
  const auto event = std::make_shared<Event>();
  {
    const std::lock_guard lock(runtime().mutex);
    issue_record(event, stream);
  }
  await(event);
}

void wait_for_stream(int stream) {
  drain_stream(stream);
  throw_failure();
}

void wait_for_device(int device) {
  for (int number = 0; number < kStreamsPerDevice; ++number) {
    const int stream = device * kStreamsPerDevice + number;
    bool exists = false;
    {
      const std::lock_guard lock(runtime().mutex);
      exists = runtime().streams[stream] != nullptr;
    }
    if (exists) wait_for_stream(stream);
  }
}

void throw_failure() {
  std::string failure;
  {
    const std::lock_guard lock(runtime().mutex);
    failure = std::exchange(runtime().failure, {});
  }
  TORCH_CHECK(failure.empty(), "sim: a kernel failed earlier: ", failure);
}

}  // namespace lockstep::sim
