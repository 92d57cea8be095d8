// Facts about a checkpoint that can be read without loading it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

/// Where in training a checkpoint was taken.
struct CheckpointInfo {
  std::int64_t epoch = 0;                            ///< completed epochs
  std::int64_t global_step = 0;                      ///< optimizer steps
  int world_size = 1;                                ///< ranks that wrote it
  std::string strategy = {};                         ///< that wrote it
  std::map<std::string, int> mesh = {};              ///< ranks along each axis: {"replicate", 4}
  std::map<std::string, std::string> versions = {};  ///< of the writer: {"lockstep", "0.1.0"}
};

/// How much of a checkpoint is compared with its checksums.
enum class Verify {
  kAll,    ///< every byte, when it is opened
  kNeeded  ///< what is read, when it is read
};

}  // namespace lockstep
