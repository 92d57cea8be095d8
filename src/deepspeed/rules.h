// What no single key of a configuration can say.
#pragma once

#include <string>
#include <vector>

#include <lockstep/deepspeed/config.h>

namespace lockstep::deepspeed {

/// Sentences about settings that have no effect beside others.
LOCKSTEP_API std::vector<std::string> advice(const DeepSpeedConfig& config);

/// As validate(), but what is wrong with the optimizer or the scheduler goes to DeepSpeedConfig::refused.
void check_rules(DeepSpeedConfig& config);

}  // namespace lockstep::deepspeed
