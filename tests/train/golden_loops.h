// What Lightning's loops did, for tests that do the same.
#pragma once

#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "support/paths.h"

namespace lockstep::testing {

/// An entry of golden_loops.json.
inline nlohmann::json golden_loops(const std::string& entry) {
  return nlohmann::json::parse(std::ifstream(test::in_repository("tests/train/golden_loops.json"))).at(entry);
}

}  // namespace lockstep::testing
