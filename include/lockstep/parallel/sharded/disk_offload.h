// What of a sharded model lies on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

/// Files are made in a folder of this process below `directory`, and removed with it. Elements, unless it
/// says bytes. Names and defaults from block_size on are those of DeepSpeed's section `aio`.
struct DiskOffload {
  std::filesystem::path directory;       ///< must be there
  std::string option = "offload_dir";    ///< by which users name it: for errors
  bool parameters = true;                ///< shards, and the gradients on them, lie in mapped files
  bool optimizer = true;                 ///< the optimizer's state is in memory for what a step works on only
  double optimizer_share = 1.0;          ///< of its elements; the rest, of the first parameters, is in memory
  std::int64_t tile_elements = 1 << 20;  ///< whose state a step has in memory at once, at least a parameter
  std::size_t buffers = 3;               ///< tiles in memory: one is stepped, others are read and written
  std::int64_t block_size = 1 << 20;     ///< bytes that are transferred at once; a multiple of 4096
  std::int64_t queue_depth = 8;          ///< blocks that are under way at most
  bool single_submit = false;            ///< hand blocks to the system one by one
  bool overlap_events = true;            ///< hand over more while some are under way

  bool operator==(const DiskOffload&) const = default;
};

}  // namespace lockstep
