// On which devices a run's ranks are: the `accelerator` and `devices` options of Trainer and Fabric, in all
// the forms that Lightning takes, and which accelerators a machine has.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <c10/core/Device.h>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// A number of devices, `4`, where -1 stands for all there are; their indices, `{1, 3}`; their names; or
/// "auto", the default. As text: "auto", "4", "-1", "1, 3", "2," for the one index 2, and "GPU-5f3c,
/// MIG-8b1e"; neither 0 nor less than -1. What a number or an index means, and whether there is such a
/// device, is for parse_devices() to say.
class LOCKSTEP_API Devices {
 public:
  /// As many as there are, or as the launcher started ranks.
  struct Auto {
    bool operator==(const Auto&) const = default;
  };
  /// Numbers of devices, from 0.
  using Indices = std::vector<int>;
  /// Beginnings of UUIDs as `nvidia-smi -L` lists them: "GPU-5f3c", "MIG-8b1e" for a part of a device.
  struct Names {
    std::vector<std::string> names;  ///< at least one
    bool operator==(const Names&) const = default;
  };

  Devices() = default;
  Devices(int count) : value_(count) {}
  Devices(Indices indices) : value_(std::move(indices)) {}
  Devices(std::initializer_list<int> indices) : value_(Indices(indices)) {}
  Devices(Names names) : value_(std::move(names)) {}
  /// @throws ConfigError naming the forms that are accepted
  Devices(std::string_view text);
  Devices(const std::string& text) : Devices(std::string_view(text)) {}
  Devices(const char* text) : Devices(std::string_view(text)) {}
  /// Neither true nor 0.5 is a number of devices.
  template <class T>
  requires std::same_as<T, bool> || std::floating_point<T> Devices(T)
  = delete;

  /// Whether the devices are chosen by lockstep.
  bool is_auto() const { return std::holds_alternative<Auto>(value_); }
  /// The number; none for "auto", indices and names.
  const int* number() const { return std::get_if<int>(&value_); }
  /// The indices; none for "auto" and for a number.
  const Indices* indices() const { return std::get_if<Indices>(&value_); }
  /// The names; null where there are none.
  const std::vector<std::string>* names() const {
    const auto* const found = std::get_if<Names>(&value_);
    return found != nullptr ? &found->names : nullptr;
  }
  /// A text that gives the same.
  std::string text() const;

  bool operator==(const Devices&) const = default;

 private:
  std::variant<Auto, int, Indices, Names> value_;
};

template <>
struct LOCKSTEP_API OptionType<Devices> {
  /// It is written as a list.
  static constexpr bool kIsList = true;
  static Expected<Devices> parse(std::string_view text);
  static std::string print(const Devices& devices) { return devices.text(); }
  static std::string accepted();
  static std::string type() { return "int or list"; }
};

/// What there is to run on besides CPUs; an interface, so that what follows from the numbers can be tested
/// on any machine.
class LOCKSTEP_API DeviceInventory {
 public:
  virtual ~DeviceInventory() = default;

  /// CUDA devices that this process may see, by CUDA_VISIBLE_DEVICES. Leaves CUDA uninitialised, so that
  /// the process can still fork.
  virtual int cuda_count() const = 0;
  /// Their names in that order, which CUDA_VISIBLE_DEVICES takes: UUIDs, or numbers where they are not known.
  virtual std::vector<std::string> cuda_names() const { return {}; }
  /// Whether memory can be had on that CUDA device, 0 <= index < cuda_count(): not where another process has
  /// it for itself (exclusive mode). Leaves CUDA uninitialised in this process. Blocks.
  virtual bool is_usable_cuda(int index) const = 0;
};

/// This machine, asked through NVIDIA's management library where there is one.
LOCKSTEP_API const DeviceInventory& this_machine();

/// The first `count` CUDA devices on which memory can be had, in ascending order; -1: all of them, which may
/// be none. Two processes that ask at once may be given the same, unless the devices are in exclusive mode.
/// @throws ConfigError when more are asked for than there are, or than are usable
/// Lightning: fabric/accelerators/cuda.py find_usable_cuda_devices
LOCKSTEP_API std::vector<int> find_usable_cuda_devices(int count = -1,
                                                       const DeviceInventory& inventory = this_machine());

/// How many ranks this node runs and on which devices.
struct DevicePlan {
  std::string accelerator = "cpu";  ///< its name in the table of accelerators
  int count = 1;                    ///< ranks on this node, >= 1
  std::vector<int> indices = {};    ///< each local rank's, among those that are visible; of "cpu": none
  /// Each local rank's, where some are parts of devices (MIG), of which CUDA shows a process one alone.
  std::vector<std::string> names = {};
};

/// Lightning's table. On "cpu", "auto" is 1 and a number is that many ranks. On "cuda" (or "gpu"), "auto"
/// and -1 are all visible devices, a number is the first so many, and a list names them. A device in MIG mode
/// counts as its parts. The accelerator
/// "auto" is the CPU here; devices_to_run_on() looks for a better one.
/// @param under_torchelastic  it may show each process one device only: others are then not looked for
/// @throws ConfigError naming the option, the value and what there is: nothing selected, devices that are not
///         there or named twice, lists and negative numbers on "cpu"
/// Lightning: fabric/utilities/device_parser.py
LOCKSTEP_API DevicePlan parse_devices(std::string_view accelerator, const Devices& devices,
                                      const DeviceInventory& inventory = this_machine(),
                                      bool under_torchelastic = false);

/// The devices of a run that starts now on this machine: as parse_devices(), with any accelerator of the
/// table (accelerator.h). "auto" is the best one that has devices here.
/// @throws ConfigError also for an accelerator that is not there, with what was looked for
LOCKSTEP_API DevicePlan devices_to_run_on(std::string_view accelerator, const Devices& devices,
                                          bool under_torchelastic = false);

/// The device of the rank with that number on this node. A plan of one device has it for every rank: several
/// ranks can share a device, or each sees one of its own only.
/// @throws ConfigError for a rank beyond the plan's devices
LOCKSTEP_API c10::Device device_of_rank(const DevicePlan& plan, int local_rank);

/// In a rank whose accelerator is not loaded yet: hides all devices but its own (CUDA_VISIBLE_DEVICES) where
/// the plan has names. Does nothing elsewhere. @throws ConfigError as device_of_rank()
LOCKSTEP_API void show_device_of_rank(const DevicePlan& plan, int local_rank);

}  // namespace lockstep
