// What the library of a kind of device counts, for summary.json.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Numbers by name, such as "compile_seconds".
using DeviceFigures = std::map<std::string, double>;

/// device_figures() has what `count` gives, under `name`. Thread-safe.
LOCKSTEP_API void report_device_figures(const std::string& name, std::function<DeviceFigures()> count);

/// Those of this process so far, by name: "xla". Thread-safe.
LOCKSTEP_API std::map<std::string, DeviceFigures> device_figures();

}  // namespace lockstep::detail
