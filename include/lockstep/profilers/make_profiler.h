// Creates profilers by name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/profilers/profiler.h>

namespace lockstep {

/// "simple", "advanced", "trace".
LOCKSTEP_API std::span<const std::string> profiler_names();

/// The profiler called `name`, with its defaults. `file` is as for its class; a trace without a file name is
/// called "trace".
/// @throws ConfigError for other names
LOCKSTEP_API std::unique_ptr<Profiler> make_profiler(std::string_view name, ProfilerFile file = {});

}  // namespace lockstep
