// Reading a configuration for a run, which need not use all of it; the rules between keys; and single
// settings by key.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/deepspeed/config.h>

namespace lockstep::deepspeed {

/// Warnings about settings that have no effect beside others.
LOCKSTEP_API std::vector<std::string> advice(const DeepSpeedConfig& config);

/// As validate(), but errors of the sections "optimizer" and "scheduler" go to DeepSpeedConfig::refused.
void check_rules(DeepSpeedConfig& config);

/// The value at `key` (`zero_optimization.stage`, `optimizer.type`, `optimizer.params.lr`), as it is printed;
/// empty without such a key.
LOCKSTEP_API std::string value_at(const DeepSpeedConfig& config, const std::string& key);

/// Sets the value at `key`, a single one, from how it is printed; does nothing without such a key, or for no
/// value.
LOCKSTEP_API void set_value_at(DeepSpeedConfig& config, const std::string& key, const std::string& value);

/// As read_deepspeed_config(), but errors of the sections "optimizer" and "scheduler" go to
/// DeepSpeedConfig::refused: a program with its own optimizer does not use them. `fill` is called before the
/// rules between settings are checked.
LOCKSTEP_API ReadDeepSpeedConfig read_config_for_run(const std::filesystem::path& file,
                                                     const std::function<void(DeepSpeedConfig&)>& fill = {});

/// @throws ConfigError where the section `key` is one of DeepSpeedConfig::refused
LOCKSTEP_API void require_usable(const DeepSpeedConfig& config, const std::string& key);

}  // namespace lockstep::deepspeed
