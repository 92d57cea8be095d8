#include "offload/heap.h"

#include <cstdlib>  // __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace lockstep::offload {

// The value is malloc's own at first; to set it is what stops it from growing.
void give_back_what_is_freed() {
#ifdef __GLIBC__
  (void)::mallopt(M_MMAP_THRESHOLD, 128 * 1024);
#endif
}

}  // namespace lockstep::offload
