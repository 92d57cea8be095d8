// --rdzv-conf KEY=VALUE,... of `lockstep run`.
#pragma once

#include <string>

#include <lockstep/launch/launch_options.h>

/// Sets the options that `text` names: torchrun's keys, times in seconds, and token_file.
/// @throws lockstep::ConfigError naming the key, its value and what is accepted
void apply_rdzv_conf(const std::string& text, lockstep::RendezvousOptions& options);
