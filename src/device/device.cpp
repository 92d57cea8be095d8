#include <lockstep/device/device.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include <lockstep/base/error.h>
#include <lockstep/device/accelerator.h>

namespace lockstep {
namespace {

using Indices = Devices::Indices;

// Lightning's names of accelerators that are not built yet.
constexpr std::string_view kPlanned[] = {"mps", "tpu"};

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

// The visible devices of an accelerator.
struct Visible {
  std::string accelerator;
  int count;

  std::string text() const {
    return std::to_string(count) + " visible " + (accelerator == "cuda" ? "CUDA" : accelerator) + " device" +
           (count == 1 ? "" : "s") + (count > 0 ? ", from index 0" : "");
  }
};

void check_distinct(const Devices& devices, Indices indices) {
  std::ranges::sort(indices);
  if (std::ranges::adjacent_find(indices) != indices.end())
    refuse(devices, "a device is named twice", "each index once");
}

void check_there(const Devices& devices, const Indices& indices, const Visible& visible) {
  const auto is_there = [&](int index) { return index >= 0 && index < visible.count; };
  if (std::ranges::all_of(indices, is_there)) return;
  refuse(devices, "not all of these are there", visible.text(),
         visible.accelerator == "cuda" ? "CUDA_VISIBLE_DEVICES says which are visible" : "");
}

DevicePlan plan_devices(const Devices& devices, const Visible& visible, bool under_torchelastic) {
  auto indices = wanted_of(devices, visible.count);
  if (indices.empty()) refuse(devices, "nothing to run on", "some of " + visible.text());
  const bool sees_one_of_several = under_torchelastic && indices.size() != 1 && visible.count == 1;
  if (!sees_one_of_several) {
    check_distinct(devices, indices);
    check_there(devices, indices, visible);
  }
  return {.accelerator = visible.accelerator,
          .count = static_cast<int>(indices.size()),
          .indices = std::move(indices)};
}

const Accelerator& chosen_accelerator(std::string_view name) {
  if (name == "auto") return best_accelerator();
  if (const auto* const found = find_accelerator(name)) return *found;
  const auto accepted = "auto, gpu, " + accelerator_names();
  if (std::ranges::find(kPlanned, name) == std::end(kPlanned))
    refuse_accelerator(name, "no such accelerator", accepted);
  refuse_accelerator(name, "accelerator " + std::string(name) + " is not built yet", accepted,
                     "docs/status.md says what is planned");
}

}  // namespace

DevicePlan parse_devices(std::string_view accelerator, const Devices& devices,
                         const DeviceInventory& inventory, bool under_torchelastic) {
  if (accelerator == "auto" || accelerator == "cpu") return plan_cpus(devices);
  if (accelerator != "cuda" && accelerator != "gpu")
    refuse_accelerator(accelerator, "no devices of this accelerator", "auto, cpu, cuda or gpu");
  return plan_devices(devices, {.accelerator = "cuda", .count = inventory.cuda_count()}, under_torchelastic);
}

DevicePlan devices_to_run_on(std::string_view accelerator, const Devices& devices, bool under_torchelastic) {
  const auto& chosen = chosen_accelerator(accelerator);
  if (chosen.type() == c10::DeviceType::CPU) return plan_cpus(devices);
  const int visible = chosen.count();
  if (visible == 0)
    refuse_accelerator(accelerator, "accelerator " + std::string(chosen.name()) + " is not there",
                       "one that has devices here: " + std::string(best_accelerator().name()),
                       chosen.absence());
  return plan_devices(devices, {.accelerator = std::string(chosen.name()), .count = visible},
                      under_torchelastic);
}

c10::Device device_of_rank(const DevicePlan& plan, int local_rank) {
  const auto type = find_accelerator(plan.accelerator)->type();
  if (type == c10::DeviceType::CPU) return {type};
  const auto place = plan.indices.size() == 1 ? 0 : static_cast<std::size_t>(local_rank);
  if (place < plan.indices.size()) return {type, static_cast<c10::DeviceIndex>(plan.indices[place])};
  throw ConfigError("device", {.what = "local rank " + std::to_string(local_rank) + " has no device",
                               .expected = "a device for each rank of this node, or one that all share",
                               .got = std::to_string(plan.indices.size()) + " devices",
                               .hint = "start as many ranks per node as there are devices"});
}

}  // namespace lockstep
