// Texts of Hjson: what stands in quotation marks, or bare.
#pragma once

#include <string>

#include "deepspeed/hjson_cursor.h"

namespace lockstep::deepspeed {

/// A text in the quotation marks that are next, escapes replaced. @throws ConfigError when it is malformed
std::string take_quoted(HjsonCursor& cursor);

/// A bare text, without the white space around it; empty when what is next cannot be in one.
std::string take_bare(HjsonCursor& cursor);

}  // namespace lockstep::deepspeed
