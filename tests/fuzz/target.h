// What is fuzzed: a target has one file *_target.cpp, one line below and one in targets().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "support/bytes.h"

namespace lockstep::fuzz {

struct Target {
  std::string name;
  std::vector<std::string> seeds;   ///< inputs to start from; most are valid
  std::vector<std::string> tokens;  ///< pieces that mean something to the parser
  /// Memory that it may hold at a time: this much, and so many bytes per byte of the input.
  std::size_t memory_bytes = std::size_t{16} << 10;
  std::size_t memory_per_byte = 1;
  /// Gives the input to the parser; throws when it does what it never may.
  std::function<void(std::span<const std::byte>)> run;
};

Target braces_target();
Target deepspeed_target();
Target hosts_target();
Target idx_target();
Target image_target();
Target manifest_target();
Target nodes_target();
Target numbers_target();
Target pickle_target();
Target safetensors_target();
Target tar_target();
Target tokens_target();
Target torch_file_target();
Target zero_target();
Target zip_target();

inline std::vector<Target> targets() {
  return {braces_target(),   deepspeed_target(), hosts_target(),      idx_target(),    image_target(),
          manifest_target(), nodes_target(),     numbers_target(),    pickle_target(), safetensors_target(),
          tar_target(),      tokens_target(),    torch_file_target(), zero_target(),   zip_target()};
}

/// @throws std::logic_error with `what` unless `is_so`
void expect(bool is_so, const std::string& what);

using test::bytes_of;

}  // namespace lockstep::fuzz
