#include <lockstep/device/device.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

using Indices = Devices::Indices;

// Lightning's names of accelerators that are not built yet.
constexpr std::string_view kPlanned[] = {"cuda", "gpu", "mps", "tpu"};

[[noreturn]] void refuse(const Devices& devices, const std::string& what, const std::string& expected,
                         const std::string& hint = "") {
  throw ConfigError(
      "device",
      {.what = "devices: " + what, .expected = expected, .got = "\"" + devices.text() + "\"", .hint = hint});
}

[[noreturn]] void refuse_accelerator(std::string_view accelerator, const std::string& what,
                                     const std::string& expected, const std::string& hint = "") {
  throw ConfigError(
      "device",
      {.what = what, .expected = expected, .got = "\"" + std::string(accelerator) + "\"", .hint = hint});
}

DevicePlan plan_cpus(const Devices& devices) {
  const std::string expected = "\"auto\" or a number >= 1 on accelerator cpu";
  if (devices.is_auto()) return {};
  if (devices.indices() != nullptr)
    refuse(devices, "nothing to run on", expected, "CPUs have no device indices: give the number of ranks");
  const int count = *devices.number();
  if (count < 0)
    refuse(devices, "nothing to run on", expected,
           "-1 means all accelerators; the number of CPU ranks must be given");
  if (count == 0) refuse(devices, "nothing to run on", expected);
  return {.accelerator = "cpu", .count = count};
}

Indices first(int count) {
  Indices indices(static_cast<std::size_t>(std::max(0, count)));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

Indices wanted_of(const Devices& devices, int visible) {
  if (devices.indices() != nullptr) return *devices.indices();
  const bool all = devices.is_auto() || *devices.number() == -1;
  return first(all ? visible : *devices.number());
}

std::string shown(int visible) {
  return std::to_string(visible) + " visible CUDA device" + (visible == 1 ? "" : "s") +
         (visible > 0 ? ", from index 0" : "");
}

void check_distinct(const Devices& devices, Indices indices) {
  std::ranges::sort(indices);
  if (std::ranges::adjacent_find(indices) != indices.end())
    refuse(devices, "a device is named twice", "each index once");
}

void check_there(const Devices& devices, const Indices& indices, int visible) {
  const auto is_there = [&](int index) { return index >= 0 && index < visible; };
  if (!std::ranges::all_of(indices, is_there))
    refuse(devices, "not all of these are there", shown(visible),
           "CUDA_VISIBLE_DEVICES says which are visible");
}

DevicePlan plan_cuda(const Devices& devices, int visible, bool under_torchelastic) {
  auto indices = wanted_of(devices, visible);
  if (indices.empty()) refuse(devices, "nothing to run on", "some of " + shown(visible));
  const bool sees_one_of_several = under_torchelastic && indices.size() != 1 && visible == 1;
  if (!sees_one_of_several) {
    check_distinct(devices, indices);
    check_there(devices, indices, visible);
  }
  return {.accelerator = "cuda", .count = static_cast<int>(indices.size()), .indices = std::move(indices)};
}

}  // namespace

DevicePlan parse_devices(std::string_view accelerator, const Devices& devices,
                         const DeviceInventory& inventory, bool under_torchelastic) {
  if (accelerator == "auto" || accelerator == "cpu") return plan_cpus(devices);
  if (accelerator != "cuda" && accelerator != "gpu")
    refuse_accelerator(accelerator, "no devices of this accelerator", "auto, cpu, cuda or gpu");
  return plan_cuda(devices, inventory.cuda_count(), under_torchelastic);
}

DevicePlan devices_to_run_on(std::string_view accelerator, const Devices& devices) {
  if (accelerator != "auto" && accelerator != "cpu") {
    if (std::ranges::find(kPlanned, accelerator) == std::end(kPlanned))
      refuse_accelerator(accelerator, "no such accelerator", "auto or cpu");
    refuse_accelerator(accelerator, "accelerator " + std::string(accelerator) + " is not built yet",
                       "auto or cpu", "docs/status.md says what is planned");
  }
  return parse_devices(accelerator, devices);
}

}  // namespace lockstep
