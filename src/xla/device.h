// The XLA device as LibTorch sees it: one client per process, tensors whose memory is a value of the graph,
// and the runs that compute such values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <ATen/core/Tensor.h>

#include "xla/compile_cache.h"
#include "xla/graph.h"

namespace lockstep::xla {

/// Held by whoever looks at tensors' memory or at the graph: a backward pass records in a thread of its own.
std::recursive_mutex& device_mutex();

/// Makes LibTorch able to use the client's devices, which have `device_count` numbers, as many as there are
/// or more. Once per process, before anything uses them.
void install(std::shared_ptr<const Client> client, std::optional<std::filesystem::path> cache,
             int device_count = 0);
bool is_installed();
const std::shared_ptr<const Client>& device_client();
CompileCache& device_programs();

/// What operators without a lowering do.
enum class Fallback { kCpu, kError };
void set_fallback(Fallback fallback);

/// What happened since the process began.
struct Counts {
  std::int64_t runs = 0;                            ///< of programs, without replays
  std::int64_t captures = 0;                        ///< of steps
  std::int64_t replays = 0;                         ///< of captured steps
  std::int64_t recompiled_for_shapes = 0;           ///< programs that differ from others in sizes alone
  std::int64_t operators = 0;                       ///< recorded
  std::map<std::string, std::int64_t> on_cpu = {};  ///< calls of operators without a lowering, by name
  double on_cpu_seconds = 0.0;                      ///< in these, with copying their tensors
};
Counts counts();

/// A new tensor without memory that was written.
at::Tensor make_tensor(at::IntArrayRef sizes, at::ScalarType dtype, c10::DeviceIndex device);
/// Another view of its memory.
at::Tensor view_of(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                   std::int64_t offset);

/// What a tensor holds, and what it is to hold. With device_mutex().
Value read(const at::Tensor& tensor);
void write(const at::Tensor& tensor, Value value);

/// A number as an array without dimensions; the same number again is the same array.
Value number_value(double value, at::ScalarType dtype, c10::DeviceIndex device);
/// A copy of a tensor of the CPU.
Value host_value(const at::Tensor& tensor, c10::DeviceIndex device);

/// Where the client has several partitions, what host_value() copies meanwhile, in this thread, is dealt out
/// to them by its first dimension, unless they cannot share that evenly. For batches: XLA divides what is
/// computed of it, and puts sums over all partitions where they are needed.
class DealtOut {
 public:
  DealtOut();
  ~DealtOut();
  DealtOut(const DealtOut&) = delete;
  DealtOut& operator=(const DealtOut&) = delete;
};
/// A tensor's elements, on the CPU. Runs what they need. Blocks.
at::Tensor to_host(const at::Tensor& tensor);

/// Computes all that tensors of the device hold, in one program. What nobody holds is not computed. Does not
/// wait for the device. With device_mutex().
void run_graph(c10::DeviceIndex device);
/// The same, and waits.
void synchronize_device(c10::DeviceIndex device);

/// Before an operator is recorded. A program ends with the steps of optimizers, at the next operator of
/// another kind: what is recorded then is the next training step's.
void begin_operator(c10::DeviceIndex device, bool is_optimizer_step);
/// Notes that an operator was recorded: graphs that never end are run now and then.
void note_operator(c10::DeviceIndex device);
/// Counts an operator that runs on the CPU, says so once by name. @throws Error under Fallback::kError
void note_fallback(const std::string& name);

}  // namespace lockstep::xla
