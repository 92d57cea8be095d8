#include <lockstep/device/device.h>

#include <charconv>

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

}  // namespace

DevicePlan parse_devices(std::string_view accelerator, std::string_view devices) {
  if (accelerator != "auto" && accelerator != "cpu") {
    throw ConfigError("device", {.what = "accelerator is not available",
                                 .expected = "auto or cpu",
                                 .got = "\"" + std::string(accelerator) + "\"",
                                 .where = "",
                                 .hint = "CUDA and TPU support is planned: docs/status.md"});
  }
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
