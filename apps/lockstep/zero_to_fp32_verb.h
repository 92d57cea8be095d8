// The verb `zero-to-fp32` of the `lockstep` command.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

struct ZeroToFp32Flags {
  std::string folder;
  std::string output;
  std::string tag;
  std::string max_shard_size;  ///< empty: none given
  bool exclude_frozen_parameters = false;
};

CLI::App* add_zero_to_fp32(CLI::App& app, ZeroToFp32Flags& flags);

/// @throws as lockstep::zero_to_fp32()
int zero_to_fp32(const ZeroToFp32Flags& flags);
