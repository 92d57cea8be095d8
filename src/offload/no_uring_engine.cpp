#include "offload/io_engine.h"

namespace lockstep::offload {

Expected<std::unique_ptr<IoEngine>> make_uring_engine(int, const SwapOptions&) {
  return Unexpected{"a build without liburing"};
}

}  // namespace lockstep::offload
