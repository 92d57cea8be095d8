// lockstep_sim: an accelerator that is simulated on the CPU, for tests of what is to run on real ones.
//
// It is LibTorch's device PrivateUse1, named "sim". Kernels are those of LibTorch for the CPU, run later by
// threads that stand for streams, after random delays: results have the CPU's bits where the streams are
// ordered as they must be. What orders them is also followed by vector clocks, so that what is missing is
// reported by the names of operators, whatever the delays are. Memory of a device faults when the host
// touches it. Each time the host waits for a device is counted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

namespace c10d {
class Backend;
}

namespace lockstep::sim {

constexpr auto kDeviceType = c10::DeviceType::PrivateUse1;

struct Options {
  int devices = 2;                                      ///< at most 4
  std::size_t bytes_per_device = std::size_t{1} << 30;  ///< of address space; memory is taken when it is used
  std::chrono::microseconds longest_delay{50};          ///< before each kernel
  std::uint64_t seed = 1;                               ///< of the delays
  bool prints_reports = false;                          ///< each to stderr when it is found, after "sim: "
};

/// Makes the devices known to LibTorch. Once per process, after every fork and before any thread.
void install(const Options& options = {});

/// Waits for all devices, then draws other delays. Not counted as a wait of the host.
void set_delays(std::uint64_t seed, std::chrono::microseconds longest);

/// What has happened since the start or the last reset_counters().
struct Counters {
  std::uint64_t kernels = 0;  ///< issued, copies among them
  std::uint64_t copies_to_device = 0;
  std::uint64_t copies_to_host = 0;
  std::uint64_t allocations = 0;  ///< of device memory that tensors asked for
  std::uint64_t segments = 0;     ///< of those, which the allocator could not serve from what had been freed
  std::uint64_t waits = 0;        ///< of streams for events that were not known to be over
};
Counters counters();
void reset_counters();

/// Leaves out wait number `number`, from 0, as counters() counts them: a race should be reported then.
void drop_wait(std::uint64_t number);

/// A place in the program at which streams are made to wait: the calls that lead there.
struct WaitPlace {
  std::uint64_t id = 0;  ///< the same in processes that were forked of one
  std::string text;      ///< such as "sim:0 stream 0 waits for sim:0 stream 3", and the calls
};
/// Those that waits came from since reset_counters().
std::vector<WaitPlace> wait_places();
/// Leaves out all waits of a place: a race should be reported then. 0: none is left out any more.
void drop_waits_of(std::uint64_t place);

/// A kernel, or a copy, as it was issued.
struct Issued {
  std::string op;
  int stream = 0;                          ///< as in sim::stream()
  std::uint64_t number = 0;                ///< in its stream
  std::vector<std::uint64_t> before = {};  ///< by place among all streams, the last that is over before it
  std::size_t place = 0;                   ///< of its own stream there
};

/// Notes what is issued from now on, until take_trace().
void begin_trace();
/// What was issued since, in that order.
std::vector<Issued> take_trace();
/// Whether nothing orders the two, so that they may run at once.
bool may_overlap(const Issued& a, const Issued& b);

/// Takes the names of what made the host wait for a device, in order, such as "item()".
std::vector<std::string> take_host_syncs();

/// Takes what streams and the host were not ordered for, each once, in the order in which it was found. A
/// report starts with its kind: "read before ready", "missing wait", "use after free", "wrong device" or
/// "pinned memory".
std::vector<std::string> take_reports();

/// Stream `number`, 0 (the default one) to 14, of a device.
c10::Stream stream(c10::DeviceIndex device, int number);

/// A tensor that a kernel of our own works on.
struct Operand {
  at::Tensor tensor;
  bool is_written = false;
};

/// Runs `body` in order on the current stream of the device. It may use kernel_view()s that were made before.
void launch(const std::string& name, c10::DeviceIndex device, const std::vector<Operand>& operands,
            std::function<void()> body);

/// A tensor of the CPU over the memory of `tensor`, for use within bodies of kernels only.
at::Tensor kernel_view(const at::Tensor& tensor);

struct Capture;

/// Work of streams that is recorded once and issued again by one call, as CUDA's graphs are. Between begin()
/// and end() nothing runs; whoever makes the host wait then gets an error. Replays work on the same memory;
/// random numbers go on with each.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Starts with the current stream of the current device. Other streams take part once they wait for an
  /// event of one that does. @throws c10::Error while another graph is being captured
  void begin();

  /// @throws c10::Error naming what was refused in between, or a stream that took part and that the first
  /// does not wait for
  void end();

  /// Issues all to the current stream, and to streams of the graph's own. Does not block.
  void replay();

  std::size_t kernels() const;

 private:
  std::shared_ptr<Capture> capture_;
};

/// A c10d backend over one for the CPU, as NCCL's is: collectives run on a stream of their own, in order;
/// wait() makes the current stream wait and returns at once.
c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Backend> host,
                                               c10::DeviceIndex device);

}  // namespace lockstep::sim
