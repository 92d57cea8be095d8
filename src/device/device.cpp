#include <lockstep/device/device.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse_devices(std::string_view devices, const std::string& hint) {
  throw ConfigError("device", {.what = "devices: nothing to run on",
                               .expected = "\"auto\" or a number >= 1 on accelerator cpu",
                               .got = "\"" + std::string(devices) + "\"",
                               .where = "",
                               .hint = hint});
}

// Lightning's names of accelerators that are not built yet.
constexpr std::string_view kPlanned[] = {"cuda", "gpu", "mps", "tpu"};

void check_accelerator(std::string_view accelerator) {
  if (accelerator == "auto" || accelerator == "cpu") return;
  const bool is_planned = std::ranges::find(kPlanned, accelerator) != std::end(kPlanned);
  throw ConfigError("device",
                    {.what = is_planned ? "this accelerator is not built yet" : "no such accelerator",
                     .expected = "auto or cpu",
                     .got = "\"" + std::string(accelerator) + "\"",
                     .hint = is_planned ? "docs/status.md says what is planned" : ""});
}

}  // namespace

DevicePlan parse_devices(std::string_view accelerator, std::string_view devices) {
  check_accelerator(accelerator);
  if (devices == "auto") return {};
  int count = 0;
  const auto [end, status] = std::from_chars(devices.data(), devices.data() + devices.size(), count);
  if (status != std::errc{} || end != devices.data() + devices.size()) {
    const bool is_list = devices.find(',') != std::string_view::npos;
    refuse_devices(devices, is_list ? "CPUs have no device indices: give the number of ranks" : "");
  }
  if (count < 0) refuse_devices(devices, "-1 means all accelerators; the number of CPU ranks must be given");
  if (count == 0) refuse_devices(devices, "");
  return {.accelerator = "cpu", .count = count};
}

}  // namespace lockstep
