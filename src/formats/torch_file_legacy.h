// Files that torch.save wrote before PyTorch 1.6, and still does with _use_new_zipfile_serialization=False: pickles
// one after the other (a magic number, a version, facts of the system, the value, the keys of the storages), then
// the storages, each behind the number of its elements.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>

#include <lockstep/base/expected.h>
#include <lockstep/formats/pickle.h>

namespace lockstep::torch_file {

struct Legacy {
  pickle::Value root;
  std::unordered_map<std::string, std::span<const std::byte>> storages;  ///< by key; their bytes lie in the file
};

/// Whether `file` starts with that format's magic number.
bool is_legacy(std::span<const std::byte> file);

/// Reads such a file. Never throws for bad input; the reason says what is wrong.
Expected<Legacy> parse_legacy(std::span<const std::byte> file);

}  // namespace lockstep::torch_file
