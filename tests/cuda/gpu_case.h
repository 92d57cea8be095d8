// What the parts of gpu_case share.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::detail {

/// Prints the line of a check.
void report(const std::string& check, bool is_ok, nlohmann::json more = nlohmann::json::object());

/// `gpu_case steps`: whole steps of training (gpu_steps.cpp).
void measure_steps();

}  // namespace lockstep::detail
