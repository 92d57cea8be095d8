// Where arguments of DeepSpeed say something else than its file.
#pragma once

#include <set>
#include <string>

#include <lockstep/deepspeed/config.h>
#include <lockstep/strategy/deepspeed.h>

namespace lockstep::detail {

/// What the arguments say, where the file has "auto" for it.
void fill_from_arguments(DeepSpeedConfig& file, const DeepSpeed& arguments);

/// With a file the arguments are not looked at. Those that are not the defaults, or are among `given`, must
/// say what `file` says.
/// @throws ConfigError naming argument and key, and both values. Exported for tests.
LOCKSTEP_API void check_arguments(const DeepSpeed& arguments, const DeepSpeedConfig& file,
                                  const std::set<std::string>& given);

}  // namespace lockstep::detail
