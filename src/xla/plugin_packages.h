// The plug-ins in packages of the Python on PATH, by the kind of device that they are for.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::xla {

/// Whether `text` names a kind of device, such as "tpu" or PJRT_DEVICE's "TPU", and no file.
bool is_device_kind(const std::string& text);

/// The plug-in for `kind` in the first package that the Python on PATH has. Looks for files and loads
/// nothing; blocks until that Python has told where its packages are.
/// @param named_by  "PJRT_DEVICE", for errors
/// @throws ConfigError where there is no Python, none of the packages, or no plug-in for such a kind
std::filesystem::path plugin_in_python(const std::string& kind, const std::string& named_by);

}  // namespace lockstep::xla
