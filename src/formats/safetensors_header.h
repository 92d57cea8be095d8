// The JSON header of a safetensors file, before its numbers are checked against the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/formats/safetensors.h>

namespace lockstep::safetensors::detail {

/// One tensor's entry, as it stands there.
struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> data_offsets;
};

struct Header {
  std::vector<HeaderEntry> entries;
  Metadata metadata;
};

/// Reads the JSON text: its form (which keys, which types, no key twice), not what the numbers mean.
/// Memory and time are proportional to the text, however it is nested.
Expected<Header> parse_header(std::string_view json);

/// `name` for a message: in quotes, cut when it is long.
std::string shown(std::string_view name);

}  // namespace lockstep::safetensors::detail
