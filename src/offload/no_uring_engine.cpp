// Takes the place of io_uring where the library is built without liburing.
#include "offload/io_engine.h"

namespace lockstep::offload {

Expected<std::unique_ptr<IoEngine>> make_uring_engine(int, const SwapOptions&) {
  return Unexpected{"a build without liburing"};
}

}  // namespace lockstep::offload
