// Who carries out transfers in the background.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

#include "offload/block.h"
#include "offload/swap_options.h"

namespace lockstep::offload {

/// Of one file. Brings all blocks that it was given to their end, also while it is destroyed.
class IoEngine {
 public:
  virtual ~IoEngine() = default;

  /// "io_uring" or "threads".
  virtual std::string_view name() const = 0;
  /// Takes the blocks over; does not wait for them. Thread-safe.
  virtual void submit(std::span<Block> blocks) = 0;
};

/// The engine that `options` ask for. `fd` must stay open as long as it lives.
/// @throws ConfigError when io_uring is asked for and the system has or allows none; Error when there can be
/// no thread
std::unique_ptr<IoEngine> make_engine(int fd, const SwapOptions& options);

/// The reason, where there is no io_uring for this process.
Expected<std::unique_ptr<IoEngine>> make_uring_engine(int fd, const SwapOptions& options);

std::unique_ptr<IoEngine> make_thread_engine(int fd, const SwapOptions& options);

}  // namespace lockstep::offload
