// A configuration for a run, which need not use all of it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include <lockstep/deepspeed/config.h>

namespace lockstep::deepspeed {

/// As read_deepspeed_config(), but what is wrong in the sections "optimizer" and "scheduler" is kept in
/// DeepSpeedConfig::refused: a program that has its own does not need them. `fill` is called before
/// settings are held against each other.
LOCKSTEP_API ReadDeepSpeedConfig read_config_for_run(const std::filesystem::path& file,
                                                     const std::function<void(DeepSpeedConfig&)>& fill = {});

/// @throws ConfigError as using the section called `key` would be one
LOCKSTEP_API void require_usable(const DeepSpeedConfig& config, const std::string& key);

}  // namespace lockstep::deepspeed
