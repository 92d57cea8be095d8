// How files of swapped tensors are read and written.
#pragma once

#include <cstdint>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::offload {

/// Who carries transfers out.
enum class EngineKind {
  kAuto,     ///< io_uring where the system allows it, else threads
  kIoUring,  ///< io_uring(7), with one thread of its own
  kThreads   ///< threads that call pread(2) and pwrite(2)
};

/// The names and defaults of DeepSpeed's section `aio`.
struct SwapOptions {
  std::int64_t block_size = 1 << 20;      ///< bytes that are transferred at once; a multiple of 4096
  std::int64_t queue_depth = 8;           ///< blocks that are under way at most; threads: up to 16
  bool single_submit = false;             ///< hand blocks to io_uring one by one
  bool overlap_events = true;             ///< false: io_uring gets more blocks when all that it had are done
  EngineKind engine = EngineKind::kAuto;  ///< not DeepSpeed's
  bool direct = true;  ///< past the page cache (O_DIRECT) where the file system can; not DeepSpeed's
};

/// @throws ConfigError naming key, value and what is accepted
LOCKSTEP_API void validate(const SwapOptions& options);

}  // namespace lockstep::offload
