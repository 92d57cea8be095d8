// Blocks of DeepSpeed's configuration without which training would silently be another one.
#pragma once

#include <string_view>

#include "deepspeed/hjson.h"

namespace lockstep::deepspeed {

/// Known by its name, and refused where it is asked for.
struct RefusedBlock {
  std::string_view path;
  std::string_view consequence;  ///< of leaving it out
  std::string_view instead;      ///< what to do
  bool (*is_asked_for)(const Hjson& value);
};

/// That at `path`, or null.
const RefusedBlock* refused_block(std::string_view path);

}  // namespace lockstep::deepspeed
