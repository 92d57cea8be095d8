// Values of Hjson meet options.
#pragma once

#include <string>

#include <lockstep/base/option_visitor.h>

#include "deepspeed/hjson.h"

namespace lockstep::deepspeed {

/// Sets `field` from `value`. For integers 2e8 is 200000000, and 2.0 is 2; numbers may be texts; settings
/// that are texts take no others.
Expected<void, OptionFailure> read_value(OptionField& field, const Hjson& value);

/// How `value` is named in errors: `"abc"`, `2.5`, `a list`, `null`, `an object`.
std::string shown(const Hjson& value);

}  // namespace lockstep::deepspeed
