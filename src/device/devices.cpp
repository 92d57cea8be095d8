// The option `devices`, the devices that this machine has, and which of them the ranks of a run are on.
#include <lockstep/device/devices.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>
#include <optional>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/device/accelerator.h>

#include "base/format.h"
#include "base/visible_devices.h"
#include "device/nvidia_driver.h"

namespace lockstep {
namespace {

std::optional<int> integer(std::string_view text) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Others are nothing to run on, whatever the accelerator.
bool is_number_of_devices(int number) { return number == -1 || number >= 1; }

// As Lightning: what stands between commas may be nothing.
std::optional<Devices> parse_list(std::string_view text) {
  Devices::Indices indices;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    const auto item = detail::trimmed(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (item.empty()) continue;
    const auto index = integer(item);
    if (!index) return std::nullopt;
    indices.push_back(*index);
  }
  return indices;
}

// Whether a part of a list says a device's name.
bool is_device_name(std::string_view text) { return text.starts_with("GPU-") || text.starts_with("MIG-"); }

// Nothing where not all are names.
std::optional<Devices> parse_names(std::string_view text) {
  Devices::Names found;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    const auto item = detail::trimmed(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (item.empty()) continue;
    if (!is_device_name(item)) return std::nullopt;
    found.names.emplace_back(item);
  }
  return found;
}

std::optional<Devices> parse_text(std::string_view text) {
  text = detail::trimmed(text);
  if (detail::same_name(text, "auto")) return Devices();
  if (text.starts_with('[') && text.ends_with(']')) {
    text = detail::trimmed(text.substr(1, text.size() - 2));
    return is_device_name(text) ? parse_names(text) : parse_list(text);
  }
  if (is_device_name(text)) return parse_names(text);
  if (text.find(',') != std::string_view::npos) return parse_list(text);
  const auto number = integer(text);
  if (number && is_number_of_devices(*number)) return *number;
  return std::nullopt;
}

}  // namespace

Devices::Devices(std::string_view text) {
  auto parsed = OptionType<Devices>::parse(text);
  if (!parsed)
    throw ConfigError("device",
                      {.what = "devices", .expected = parsed.error(), .got = '"' + std::string(text) + '"'});
  value_ = std::move(parsed->value_);
}

std::string Devices::text() const {
  if (is_auto()) return "auto";
  if (number() != nullptr) return std::to_string(*number());
  if (names() != nullptr) return joined(*names(), ",");
  std::string list;
  for (const int index : *indices()) list += (list.empty() ? "" : ",") + std::to_string(index);
  return indices()->size() > 1 ? list : "[" + list + "]";
}

Expected<Devices> OptionType<Devices>::parse(std::string_view text) {
  if (auto devices = parse_text(text)) return std::move(*devices);
  return Unexpected{accepted()};
}

std::string OptionType<Devices>::accepted() {
  return "auto, a number of devices (a number >= 1, or -1 for all of an accelerator), a list of indices, or "
         "of names (GPU-..., MIG-...)";
}

namespace {

[[noreturn]] void refuse(const std::string& what, int expected, int got, const std::string& hint = "") {
  throw ConfigError("device", {.what = what,
                               .expected = "at most " + std::to_string(expected) + ", or -1 for all",
                               .got = std::to_string(got),
                               .hint = hint});
}

}  // namespace

std::vector<int> find_usable_cuda_devices(int count, const DeviceInventory& inventory) {
  if (count == 0) return {};
  const int visible = inventory.cuda_count();
  if (count < -1 || count > visible)
    refuse("find_usable_cuda_devices: there are not so many", visible, count);
  std::vector<int> usable;
  std::string occupied;
  for (int index = 0; index < visible && static_cast<int>(usable.size()) != count; ++index) {
    if (inventory.is_usable_cuda(index))
      usable.push_back(index);
    else
      occupied += (occupied.empty() ? "" : ", ") + std::to_string(index);
  }
  const int found = static_cast<int>(usable.size());
  if (found < count)
    refuse("find_usable_cuda_devices: not so many are usable", found, count, "occupied: " + occupied);
  return usable;
}

namespace {

class ThisMachine final : public DeviceInventory {
 public:
  int cuda_count() const override { return static_cast<int>(cuda_names().size()); }
  std::vector<std::string> cuda_names() const override { return detail::visible_nvidia_devices(); }

  bool is_usable_cuda(int index) const override {
    const auto names = cuda_names();
    const auto at = static_cast<std::size_t>(index);
    return at < names.size() && detail::has_usable_memory(names[at], index);
  }
};

}  // namespace

const DeviceInventory& this_machine() {
  static const ThisMachine machine;
  return machine;
}

namespace {

using Indices = Devices::Indices;

// Lightning's names of accelerators that are not built yet.
constexpr std::string_view kPlanned[] = {"mps"};

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
  if (devices.indices() != nullptr || devices.names() != nullptr)
    refuse(devices, "nothing to run on", expected, "CPUs have no device indices: give the number of ranks");
  const int count = *devices.number();
  if (count < 1) {
    refuse(devices, "nothing to run on", expected,
           count == -1 ? "-1 means all accelerators; the number of CPU ranks must be given" : "");
  }
  return {.accelerator = "cpu", .count = count};
}

Indices first(int count) {
  Indices indices(static_cast<std::size_t>(std::max(0, count)));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// The visible devices of an accelerator.
struct Visible {
  std::string accelerator;
  int count;
  std::vector<std::string> names = {};  // of "cuda"

  std::string text() const {
    return std::to_string(count) + " visible " + (accelerator == "cuda" ? "CUDA" : accelerator) + " device" +
           (count == 1 ? "" : "s") + (count > 0 ? ", from index 0" : "");
  }
};

bool is_part(const std::string& name) { return name.starts_with("MIG-"); }

// The index of each name.
Indices indices_of(const Devices& devices, const Visible& visible) {
  Indices indices;
  for (const auto& name : *devices.names()) {
    const auto is_named = [&](const std::string& other) { return other.starts_with(name); };
    const auto found = std::ranges::find_if(visible.names, is_named);
    if (found == visible.names.end() || std::ranges::count_if(visible.names, is_named) != 1)
      refuse(devices, "no or more than one device is called " + name,
             visible.names.empty() ? "names of visible CUDA devices, of which there are none"
                                   : "some of " + joined(visible.names, ", "),
             "nvidia-smi -L lists them");
    indices.push_back(static_cast<int>(found - visible.names.begin()));
  }
  return indices;
}

Indices wanted_of(const Devices& devices, const Visible& visible) {
  if (devices.indices() != nullptr) return *devices.indices();
  if (devices.names() != nullptr) return indices_of(devices, visible);
  const bool all = devices.is_auto() || *devices.number() == -1;
  return first(all ? visible.count : *devices.number());
}

// CUDA shows a process one part of a device alone, the first that CUDA_VISIBLE_DEVICES names: each rank is
// to name its own. Whole devices need no names.
std::vector<std::string> names_to_show(const Indices& indices, const Visible& visible) {
  std::vector<std::string> names;
  if (std::ranges::none_of(visible.names, is_part)) return names;
  for (const int index : indices) {
    const auto at = static_cast<std::size_t>(index);
    names.push_back(at < visible.names.size() ? visible.names[at] : std::to_string(index));
  }
  return names;
}

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
  auto indices = wanted_of(devices, visible);
  if (indices.empty()) refuse(devices, "nothing to run on", "some of " + visible.text());
  const bool sees_one_of_several = under_torchelastic && indices.size() != 1 && visible.count == 1;
  if (!sees_one_of_several) {
    check_distinct(devices, indices);
    check_there(devices, indices, visible);
  }
  auto names = names_to_show(indices, visible);
  return {.accelerator = visible.accelerator,
          .count = static_cast<int>(indices.size()),
          .indices = std::move(indices),
          .names = std::move(names)};
}

// A rank hides the others (show_device_of_rank()), and is asked again.
std::vector<std::string> cuda_names_at_start() {
  static const auto names = this_machine().cuda_names();
  return names;
}

const Accelerator& chosen_accelerator(std::string_view name) {
  if (name == "auto") return best_accelerator();
  if (const auto* const found = find_accelerator(name)) return *found;
  const auto accepted = "auto, gpu, " + accelerator_names();
  if (std::ranges::find(kPlanned, name) == std::end(kPlanned))
    refuse_accelerator(name, "no such accelerator", accepted);
  refuse_accelerator(name, "accelerator " + std::string(name) + " is not built yet", accepted,
                     "docs/status.md of the sources says what is planned");
}

}  // namespace

DevicePlan parse_devices(std::string_view accelerator, const Devices& devices,
                         const DeviceInventory& inventory, bool under_torchelastic) {
  if (accelerator == "auto" || accelerator == "cpu") return plan_cpus(devices);
  if (accelerator != "cuda" && accelerator != "gpu")
    refuse_accelerator(accelerator, "no devices of this accelerator", "auto, cpu, cuda or gpu");
  return plan_devices(
      devices, {.accelerator = "cuda", .count = inventory.cuda_count(), .names = inventory.cuda_names()},
      under_torchelastic);
}

namespace {

// 0: as many as there are.
int number_asked(const Devices& devices) {
  if (devices.indices() != nullptr)
    return devices.indices()->empty() ? 0 : *std::ranges::max_element(*devices.indices()) + 1;
  return devices.number() != nullptr ? std::max(0, *devices.number()) : 0;
}

}  // namespace

DevicePlan devices_to_run_on(std::string_view accelerator, const Devices& devices, bool under_torchelastic) {
  const auto& chosen = chosen_accelerator(accelerator);
  if (chosen.type() == c10::DeviceType::CPU) return plan_cpus(devices);
  const int visible = chosen.count_for(number_asked(devices));
  if (visible == 0)
    refuse_accelerator(accelerator, "accelerator " + std::string(chosen.name()) + " is not there",
                       "one that has devices here: " + std::string(best_accelerator().name()),
                       chosen.absence());
  auto names = chosen.type() == c10::DeviceType::CUDA ? cuda_names_at_start() : std::vector<std::string>{};
  return plan_devices(
      devices, {.accelerator = std::string(chosen.name()), .count = visible, .names = std::move(names)},
      under_torchelastic);
}

namespace {

// The place in the plan of a rank.
std::size_t place_of(const DevicePlan& plan, int local_rank) {
  const auto place = plan.indices.size() == 1 ? 0 : static_cast<std::size_t>(local_rank);
  if (place < plan.indices.size()) return place;
  throw ConfigError("device", {.what = "local rank " + std::to_string(local_rank) + " has no device",
                               .expected = "a device for each rank of this node, or one that all share",
                               .got = std::to_string(plan.indices.size()) + " devices",
                               .hint = "start as many ranks per node as there are devices"});
}

}  // namespace

c10::Device device_of_rank(const DevicePlan& plan, int local_rank) {
  const auto type = find_accelerator(plan.accelerator)->type();
  if (type == c10::DeviceType::CPU) return {type};
  const auto place = place_of(plan, local_rank);
  return {type, static_cast<c10::DeviceIndex>(plan.names.empty() ? plan.indices[place] : 0)};
}

void show_device_of_rank(const DevicePlan& plan, int local_rank) {
  if (!plan.names.empty()) env::set("CUDA_VISIBLE_DEVICES", plan.names[place_of(plan, local_rank)]);
}

}  // namespace lockstep
