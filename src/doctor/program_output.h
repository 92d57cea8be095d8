// The JSON that a program has printed among other lines.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>

namespace lockstep::doctor {

/// The line that begins with a brace, of what the program has printed.
/// @throws Error with what it has printed where it fails, does not end in time, or prints no such line
std::string output_of(const std::vector<std::string>& command, std::chrono::milliseconds timeout);

/// What `read` makes of the parsed text. @throws Error where it is no JSON, or lacks what `read` asks for
template <class Facts, class Read>
Facts read_program_output(const std::string& json, const Read& read) {
  try {
    return read(nlohmann::json::parse(json));
  } catch (const nlohmann::json::exception& failure) {
    throw Error("doctor", {.what = "lockstep-self-test printed what cannot be read",
                           .expected = "the program of this version of lockstep",
                           .got = failure.what()});
  }
}

}  // namespace lockstep::doctor
