// liblockstep_xla.so as liblockstep.so loads it.
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "device/device_figures.h"
#include "device/xla_library_interface.h"
#include "xla/device.h"

namespace lockstep::xla {
namespace {

Fallback fallback_of_environment() {
  const auto named = env::get("LOCKSTEP_XLA_FALLBACK");
  if (!named || named->empty() || *named == "cpu") return Fallback::kCpu;
  if (*named == "error") return Fallback::kError;
  throw ConfigError("xla",
                    {.what = "LOCKSTEP_XLA_FALLBACK", .expected = "cpu or error", .got = '"' + *named + '"'});
}

detail::DeviceFigures figures() {
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
          {"steps_replayed", static_cast<double>(done.replays)},
          {"operators_on_cpu", static_cast<double>(on_cpu)},
          {"on_cpu_seconds", done.on_cpu_seconds}};
}

void load_device(int devices) {
  if (is_installed()) return;
  const auto file = plugin_file(std::nullopt);
  if (!file)
    throw ConfigError("xla",
                      {.what = "no PJRT plug-in is named", .expected = "a path in LOCKSTEP_PJRT_PLUGIN"});
  set_fallback(fallback_of_environment());
  const auto options = parse_create_options(env::get("LOCKSTEP_PJRT_OPTIONS").value_or(""));
  auto client = std::make_shared<const Client>(Plugin::load(*file), options);
  if (client->device_count() < devices)
    throw ConfigError("xla", {.what = "the PJRT plug-in has fewer devices than LOCKSTEP_PJRT_DEVICES says",
                              .expected = "at most " + std::to_string(client->device_count()),
                              .got = std::to_string(devices),
                              .where = file->string(),
                              .hint = "for CPUs, LOCKSTEP_PJRT_OPTIONS=cpu_device_count=N makes as many"});
  install(std::move(client), cache_folder());
  detail::report_device_figures("xla", &figures);
}

constexpr detail::XlaLibrary kLibrary{.load = &load_device};

}  // namespace
}  // namespace lockstep::xla

extern "C" __attribute__((visibility("default"))) const lockstep::detail::XlaLibrary* lockstep_xla_library() {
  return &lockstep::xla::kLibrary;
}
