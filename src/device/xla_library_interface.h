// What liblockstep_xla.so and liblockstep.so know of each other. The library's code is bound to one minor
// version of LibTorch and to the lockstep that it was built with.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/headeronly/version.h>

#include <lockstep/base/export.h>
#include <lockstep/base/version.h>

namespace lockstep::detail {

/// What a process is told about XLA beside environment variables, which say what is empty here.
struct XlaSettings {
  std::string plugin = {};    ///< the plug-in's file, or the name of a kind of device: cpu, cuda, tpu
  std::string fallback = {};  ///< cpu or error: what operators without a lowering do
  std::string cache = {};     ///< the folder of compiled programs, or off
  int partitions = 0;         ///< devices of the plug-in that are one device of the process; 0: not said, 1
};

/// Devices that there are to be.
struct XlaDeviceCounts {
  int declared = 1;  ///< by LOCKSTEP_PJRT_DEVICES
  int asked = 1;     ///< by a run that asks for so many ranks, or for one by its index
};

/// A function of the host that compiled programs call with copies of tensors, which it may change: they are
/// what the program goes on with. It runs in a thread of the plug-in. What it throws ends the program.
using XlaHostFunction = std::function<void(std::span<const at::Tensor> tensors)>;

/// What the library offers, and what it was built with.
struct XlaLibrary {
  const char* lockstep = kVersion;
  int torch_major = TORCH_VERSION_MAJOR;
  int torch_minor = TORCH_VERSION_MINOR;
  /// Loads the plug-in that `settings` name, and makes LibTorch able to use its devices. Called again, it
  /// takes `fallback` alone. @throws ConfigError, also where the process has another plug-in already
  void (*load)(const XlaSettings& settings, const XlaDeviceCounts& counts) = nullptr;
  /// Whether the plug-in's programs can call functions of the host. After load().
  bool (*calls_host)() = nullptr;
  /// Takes a function, and gives the number that it is called by: the lowest one that is free.
  int (*add_host_function)(XlaHostFunction function) = nullptr;
  /// Nobody may record calls of it any more. Those that run go on.
  void (*remove_host_function)(int number) = nullptr;
  /// Makes the call part of the graph of the device that all `tensors` are on: behind it, they hold what the
  /// function has made of them. Calls run in the order in which they were recorded.
  /// @param ends_step  whether it belongs to the step of an optimizer that was recorded before
  void (*record_host_call)(int number, std::span<const at::Tensor> tensors, bool ends_step) = nullptr;
  /// A copy of part of a batch, whose rows several partitions share.
  at::Tensor (*copy_batch)(const at::Tensor& tensor, at::Device device) = nullptr;
  /// Runs what was recorded for the device. Does not wait for it.
  void (*run_recorded)(int device) = nullptr;
  /// What has been compiled, replayed and left to the CPU so far, by names such as "compile_seconds".
  std::map<std::string, double> (*figures)() = nullptr;
};

/// The C symbol that gives the table.
inline constexpr const char* kXlaLibrarySymbol = "lockstep_xla_library";
using XlaLibraryFunction = const XlaLibrary* (*)();

/// Adds to what load() will be told: settings that are not empty replace those of before. To be called before
/// devices are chosen. Thread-safe.
void configure_xla(const XlaSettings& settings);

/// `tensor` on a device of XLA, as a part of a batch.
at::Tensor xla_copy_of_batch(const at::Tensor& tensor, at::Device device);

/// XlaLibrary::figures(); none where the library is not loaded.
LOCKSTEP_API std::map<std::string, double> xla_figures();

/// The library of this process. Only after the accelerator's load().
const XlaLibrary& xla_library();

}  // namespace lockstep::detail
