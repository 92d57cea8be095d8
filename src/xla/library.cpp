// liblockstep_xla.so as liblockstep.so loads it.
#include <algorithm>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "device/xla_library_interface.h"
#include "xla/capture.h"
#include "xla/device.h"
#include "xla/host_call.h"

namespace lockstep::xla {
namespace {

using detail::XlaDeviceCounts, detail::XlaSettings;

Fallback chosen_fallback(const XlaSettings& settings) {
  const auto variable = env::get("LOCKSTEP_XLA_FALLBACK").value_or("");
  const auto& named = settings.fallback.empty() ? variable : settings.fallback;
  if (named.empty() || named == "cpu") return Fallback::kCpu;
  if (named == "error") return Fallback::kError;
  throw ConfigError("xla",
                    {.what = "LOCKSTEP_XLA_FALLBACK", .expected = "cpu or error", .got = '"' + named + '"'});
}

std::optional<std::filesystem::path> chosen_cache(const XlaSettings& settings) {
  if (settings.cache.empty()) return cache_folder();
  if (settings.cache == "off") return std::nullopt;
  return settings.cache;
}

std::filesystem::path chosen_plugin(const XlaSettings& settings) {
  if (auto file = plugin_file(settings.plugin)) return *file;
  throw ConfigError("xla",
                    {.what = "no PJRT plug-in is named", .expected = "a path in LOCKSTEP_PJRT_PLUGIN"});
}

[[noreturn]] void refuse_devices(const Client& client, const std::string& than, int wanted) {
  throw ConfigError("xla", {.what = "the PJRT plug-in has fewer devices than " + than,
                            .expected = "at most " + std::to_string(client.device_count()),
                            .got = std::to_string(wanted),
                            .where = client.plugin().file().string(),
                            .hint = "for CPUs, LOCKSTEP_PJRT_OPTIONS=cpu_device_count=N makes as many"});
}

// Each would take the first ones.
[[noreturn]] void refuse_shared_devices(const Client& client) {
  throw ConfigError("xla",
                    {.what = "ranks with several devices each see all of the host's",
                     .expected = std::to_string(client.partitions()) + " devices, those of this rank",
                     .got = std::to_string(client.device_count()),
                     .where = client.plugin().file().string(),
                     .hint = "show each rank its own, as by TPU_VISIBLE_CHIPS or CUDA_VISIBLE_DEVICES, or "
                             "train on all of them with one rank"});
}

void require_partitions(int wanted) {
  const int partitions = device_client()->partitions();
  if (partitions == wanted) return;
  throw ConfigError("xla", {.what = "devices_per_process differs from what this process began with",
                            .expected = std::to_string(partitions),
                            .got = std::to_string(wanted)});
}

// CPUs have as many devices as one likes; of a TPU's, each process may see its own alone.
void check_devices(const Client& client, const XlaDeviceCounts& counts) {
  if (client.device_count() < counts.declared)
    refuse_devices(client, "LOCKSTEP_PJRT_DEVICES says", counts.declared);
  if (client.platform() == "cpu" || client.device_count() == client.partitions()) return;
  if (client.partitions() > 1 && counts.asked > 1) refuse_shared_devices(client);
  if (client.device_count() < counts.asked) refuse_devices(client, "the run asks for", counts.asked);
}

// CPUs are given the devices that a process is to have, unless somebody has said how many there are.
CreateOptions create_options(const std::shared_ptr<const Plugin>& plugin, int partitions) {
  auto options = parse_create_options(env::get("LOCKSTEP_PJRT_OPTIONS").value_or(""));
  constexpr auto kCount = "cpu_device_count";
  if (partitions > 1 && !options.contains(kCount) && Client(plugin, options).platform() == "cpu")
    options[kCount] = std::to_string(partitions);
  return options;
}

std::map<std::string, double> figures() {
  if (!is_installed()) return {};
  const auto done = counts();
  const auto programs = device_programs().counts();
  std::int64_t on_cpu = 0;
  for (const auto& [name, calls] : done.on_cpu) on_cpu += calls;
  return {{"programs_compiled", static_cast<double>(programs.compiled)},
          {"compile_seconds", programs.compile_seconds},
          {"programs_from_files", static_cast<double>(programs.from_files)},
          {"load_seconds", programs.load_seconds},
          {"programs_for_other_shapes", static_cast<double>(done.recompiled_for_shapes)},
          {"runs", static_cast<double>(done.runs)},
          {"run_seconds", InPlugin::seconds()},
          {"steps_replayed", static_cast<double>(done.replays)},
          {"operators_on_cpu", static_cast<double>(on_cpu)},
          {"on_cpu_seconds", done.on_cpu_seconds}};
}

void load_device(const XlaSettings& settings, const XlaDeviceCounts& counts) {
  set_fallback(chosen_fallback(settings));
  const auto plugin = Plugin::load(chosen_plugin(settings));
  const int partitions = std::max(settings.partitions, 1);
  if (is_installed()) return require_partitions(partitions);
  auto client = std::make_shared<const Client>(plugin, create_options(plugin, partitions), partitions);
  check_devices(*client, counts);
  const int count = std::max({client->device_count(), counts.declared, counts.asked});
  enable_host_calls(*client);
  install(std::move(client), chosen_cache(settings), count);
}

at::Tensor copy_batch(const at::Tensor& tensor, at::Device device) {
  const DealtOut dealt_out;
  return tensor.to(device);
}

// A step that is being captured becomes one program anyway.
void run_recorded(int device) {
  const std::lock_guard lock(device_mutex());
  if (current_capture() == nullptr) synchronize_device(static_cast<c10::DeviceIndex>(device));
}

constexpr detail::XlaLibrary kLibrary{.load = &load_device,
                                      .calls_host = &can_call_host,
                                      .add_host_function = &add_host_function,
                                      .remove_host_function = &remove_host_function,
                                      .record_host_call = &record_host_call,
                                      .copy_batch = &copy_batch,
                                      .run_recorded = &run_recorded,
                                      .figures = &figures};

}  // namespace
}  // namespace lockstep::xla

extern "C" __attribute__((visibility("default"))) const lockstep::detail::XlaLibrary* lockstep_xla_library() {
  return &lockstep::xla::kLibrary;
}
