#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "offload/io_engine.h"

namespace lockstep::offload {

std::unique_ptr<IoEngine> make_engine(int fd, const SwapOptions& options) {
  if (options.engine == EngineKind::kThreads) return make_thread_engine(fd, options);
  auto engine = make_uring_engine(fd, options);
  if (engine) return std::move(*engine);
  if (options.engine == EngineKind::kIoUring)
    throw ConfigError("offload", {.what = "engine io_uring",
                                  .expected = "a system that allows it",
                                  .got = engine.error(),
                                  .hint = "containers often forbid it; choose threads"});
  log_debug("offload: no io_uring (" + engine.error() + "); threads read and write");
  return make_thread_engine(fd, options);
}

}  // namespace lockstep::offload
