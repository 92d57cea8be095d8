// What one setting of a configuration is.
#pragma once

#include <string>

#include <lockstep/deepspeed/config.h>

namespace lockstep::deepspeed {

/// The value at `key` (`zero_optimization.stage`, `optimizer.type`, `optimizer.params.lr`), as it is printed;
/// empty without such a key.
LOCKSTEP_API std::string value_at(const DeepSpeedConfig& config, const std::string& key);

/// Sets the value at `key`, a single one, from how it is printed; does nothing without such a key, or for no
/// value.
LOCKSTEP_API void set_value_at(DeepSpeedConfig& config, const std::string& key, const std::string& value);

}  // namespace lockstep::deepspeed
