// Accelerator: a kind of device that ranks run on. The table of accelerators is what the option `accelerator`
// of Trainer and Fabric chooses from.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// A place in a stream of a device where the device waits for a thread of the host. A recorded step
/// (captured_step.h) comes to it again with each replay: the n-th open() is for the n-th time. Thread-safe.
class LOCKSTEP_API StreamGate {
 public:
  /// Blocks until the stream has come here, for the n-th time at the n-th call.
  void await_arrival();
  /// Lets the stream go on, now or when it comes.
  void open();

  /// For accelerators: the stream has come. Blocks until it may go on.
  void pass();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t awaited_ = 0, arrived_ = 0, opened_ = 0;
};

/// What lockstep must know of a kind of device beyond what LibTorch's own interfaces tell: guards, streams,
/// events, generators, pinned memory and memory statistics are LibTorch's, found by type(). The table holds
/// "cpu" and "cuda"; register_accelerator() adds to it. Nothing here is Collective.
/// Lightning: fabric/accelerators/accelerator.py
class LOCKSTEP_API Accelerator {
 public:
  virtual ~Accelerator();

  /// The registered name, such as "cuda".
  virtual std::string_view name() const = 0;
  /// Other names that the option takes, such as "gpu".
  virtual std::vector<std::string_view> aliases() const { return {}; }
  /// How LibTorch calls its devices.
  virtual c10::DeviceType type() const = 0;

  /// Devices that this process may use, from index 0 on. Initializes nothing: the process can still fork.
  virtual int count() const = 0;
  /// The same for a run that asks for `asked` of them. Kinds whose devices are only known once they are
  /// loaded take that for true, and load() sees to it.
  virtual int count_for(int /*asked*/) const { return count(); }
  /// Where count() is 0: what was looked for and where, and what to install.
  virtual std::string absence() const { return {}; }
  /// Whether "auto" may choose it.
  virtual bool is_automatic() const { return true; }

  /// Makes LibTorch able to use the devices. Called first thing in a process that is a rank, never in one
  /// that is to fork; does nothing when called again. Thread-safe.
  /// @throws ConfigError when that is not possible, with the remedy
  virtual void load() const {}

  /// Makes a thread of the host call gate->pass() in the order of `stream`, and the stream wait until it has
  /// returned. Meanwhile the host reads and writes `memory`, page-locked tensors of the CPU. Does not block.
  /// False, and nothing happens, where the accelerator cannot: who needs it then lets the host wait.
  virtual bool issue_gate(const c10::Stream& /*stream*/, std::shared_ptr<StreamGate> /*gate*/,
                          std::span<const at::Tensor> /*memory*/) const {
    return false;
  }
};

/// Adds `accelerator` to the table; "auto" prefers it to those that were there before.
/// @throws ConfigError when one of its names is taken
/// Lightning: AcceleratorRegistry.register
LOCKSTEP_API void register_accelerator(std::shared_ptr<const Accelerator> accelerator);

/// The one with that name or alias; null where there is none. Valid until the process ends.
LOCKSTEP_API const Accelerator* find_accelerator(std::string_view name);

/// The one whose devices LibTorch calls so; null where there is none. Valid until the process ends.
LOCKSTEP_API const Accelerator* find_accelerator(c10::DeviceType type);

/// The best one that has devices here; the CPU where no other has.
LOCKSTEP_API const Accelerator& best_accelerator();

/// The names in the table, without aliases, for texts: "cpu, cuda".
LOCKSTEP_API std::string accelerator_names();

}  // namespace lockstep
