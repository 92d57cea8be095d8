// Work with a device through the interfaces that LibTorch has for all kinds of them: what serves one
// accelerator serves every other. On the CPU each function does nothing, or what is simplest.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <lockstep/base/export.h>

namespace lockstep {

class Accelerator;

/// Memory of one device that LibTorch's allocator manages for this process, in bytes.
struct DeviceMemory {
  std::int64_t allocated = 0;       ///< that tensors have
  std::int64_t peak_allocated = 0;  ///< the most since the start or reset_peak_memory()
  std::int64_t reserved = 0;        ///< taken from the device
};

/// The device that this process's Trainer or Fabric runs on, of several the latest; the CPU before.
LOCKSTEP_API at::Device device_in_use();

/// Makes it the device that this thread uses where none is named.
LOCKSTEP_API void make_current(at::Device device);

/// Blocks until all that this process has issued to `device` is done.
LOCKSTEP_API void synchronize(at::Device device);

/// All zeros on the CPU.
LOCKSTEP_API DeviceMemory memory_of(at::Device device);
/// Begins to measure the peak of the device's memory anew.
LOCKSTEP_API void reset_peak_memory(at::Device device);

/// All that LibTorch's allocator counts, under the names of torch.cuda.memory_stats(), such as
/// "allocated_bytes.all.current", in their order; nothing on the CPU. Waits for nothing.
LOCKSTEP_API std::vector<std::pair<std::string, double>> memory_stats(at::Device device);

/// The generator of random numbers that operators use on `device`.
LOCKSTEP_API at::Generator generator_of(at::Device device);

/// `tensor` on `device`, itself where it lies there already. From the CPU it goes by page-locked memory, and
/// the copy is ordered by the current stream of the device: the host does not wait for it.
LOCKSTEP_API at::Tensor to_device(const at::Tensor& tensor, at::Device device);

}  // namespace lockstep

namespace lockstep::detail {

/// Loads `accelerator` in a process that is a rank, and makes `device`, one of its devices, the current one.
/// When that is done first, the device's random numbers begin with the seed of the CPU's.
/// @throws as Accelerator::load()
LOCKSTEP_API void begin_on_device(const Accelerator& accelerator, at::Device device);

// A generator of random numbers, under its own lock.
LOCKSTEP_API at::Tensor state_of_generator(at::Generator generator);  ///< a copy
LOCKSTEP_API void set_state_of_generator(at::Generator generator, const at::Tensor& state);
LOCKSTEP_API void seed_generator(at::Generator generator, std::uint64_t seed);

/// A stream of `device` for work beside that of the current one, from LibTorch's pool. Not for the CPU.
c10::Stream side_stream(at::Device device);

/// One stream of `device` that is always the same, for collectives that the host carries out: in it they keep
/// the order in which they were issued. Not for the CPU.
c10::Stream staging_stream(at::Device device);

/// One stream of `device` that is always the same, for copies from and to memory of the host that are to run
/// beside what is computed. Not for the CPU.
c10::Stream offload_stream(at::Device device);

/// Makes a stream from LibTorch's pool, always the same, the one to which this thread issues work: a device's
/// default stream cannot be recorded. Does nothing on the CPU.
LOCKSTEP_API void leave_default_stream(at::Device device);

/// The stream of `device` to which this thread issues work.
c10::Stream current_stream(at::Device device);

/// Makes `later` wait for what has been issued to `earlier`, both of one kind of device. The host does not
/// wait.
void order_streams(const c10::Stream& earlier, const c10::Stream& later);

}  // namespace lockstep::detail
