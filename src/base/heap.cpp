#include "base/heap.h"

#include <atomic>
#include <cstdlib>  // __GLIBC__

#include <lockstep/base/env.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace lockstep {
namespace {

std::atomic<bool> gives_back = false;

bool is_told_otherwise() {
  return gives_back || env::get("GLIBC_TUNABLES") || !env::with_prefix("MALLOC_").empty();
}

}  // namespace

// To set one of the two stops both from growing: the other one is what it would grow to.
void keep_what_is_freed() {
#ifdef __GLIBC__
  if (is_told_otherwise()) return;
  (void)::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  (void)::mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

// The first value is malloc's own at first; to set it is what stops it from growing.
void give_back_what_is_freed() {
#ifdef __GLIBC__
  gives_back = true;
  (void)::mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  (void)::mallopt(M_TRIM_THRESHOLD, 128 * 1024);
#endif
}

}  // namespace lockstep
