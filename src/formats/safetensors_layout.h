// Where everything lies in a safetensors file that is to be written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/formats/safetensors.h>

namespace lockstep::safetensors {

struct Layout {
  std::string head;                    ///< the bytes before the tensors'
  std::vector<std::size_t> order;      ///< the numbers of the tensors as their bytes follow
  std::vector<std::uint64_t> offsets;  ///< of each tensor's first byte, from the file's begin
  std::uint64_t file_bytes = 0;
};

/// The layout that write() gives `tensors`. @throws CheckpointError as write()
LOCKSTEP_API Layout layout_of(std::span<const TensorView> tensors, const Metadata& metadata = {});

}  // namespace lockstep::safetensors
