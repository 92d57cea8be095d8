// Keeps the input that is being parsed, so that a crash leaves it in a file.
#pragma once

#include <string>

namespace lockstep::fuzz {

/// From here on, a crash, a failed sanitizer or 30 s with one batch of inputs write the input that was kept
/// last to `file`, and end the program.
void keep_last_input(const std::string& file);

/// `input` is parsed next. It must live until the next call.
void keep(const std::string& input);

/// Writes what was kept last to the file.
void save_last_input();

/// Another batch begins, which has 30 s.
void renew_deadline();

}  // namespace lockstep::fuzz
