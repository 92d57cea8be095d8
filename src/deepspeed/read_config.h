// A configuration for a run, which need not use all of it: how it is read, what no single key can say, and
// what one setting is.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/deepspeed/config.h>

namespace lockstep::deepspeed {

/// Sentences about settings that have no effect beside others.
LOCKSTEP_API std::vector<std::string> advice(const DeepSpeedConfig& config);

/// As validate(), but what is wrong with the optimizer or the scheduler goes to DeepSpeedConfig::refused.
void check_rules(DeepSpeedConfig& config);

/// The value at `key` (`zero_optimization.stage`, `optimizer.type`, `optimizer.params.lr`), as it is printed;
/// empty without such a key.
LOCKSTEP_API std::string value_at(const DeepSpeedConfig& config, const std::string& key);

/// Sets the value at `key`, a single one, from how it is printed; does nothing without such a key, or for no
/// value.
LOCKSTEP_API void set_value_at(DeepSpeedConfig& config, const std::string& key, const std::string& value);

/// As read_deepspeed_config(), but what is wrong in the sections "optimizer" and "scheduler" is kept in
/// DeepSpeedConfig::refused: a program that has its own does not need them. `fill` is called before
/// settings are held against each other.
LOCKSTEP_API ReadDeepSpeedConfig read_config_for_run(const std::filesystem::path& file,
                                                     const std::function<void(DeepSpeedConfig&)>& fill = {});

/// @throws ConfigError as using the section called `key` would be one
LOCKSTEP_API void require_usable(const DeepSpeedConfig& config, const std::string& key);

}  // namespace lockstep::deepspeed
