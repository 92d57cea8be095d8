#include "launch/threads.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <thread>

#include <lockstep/base/env.h>
#include <lockstep/launch/join.h>
#include <lockstep/launch/run_program.h>

namespace lockstep {
namespace {

// OpenMP allows a list by level of nesting, and ignores what it cannot read.
int number_at_start(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

int usable_processors() {
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof(mask), &mask) == 0) return CPU_COUNT(&mask);
  return static_cast<int>(std::thread::hardware_concurrency());  // more processors than the mask holds
}

int launch::share_of_processors(int ranks) { return std::max(1, usable_processors() / ranks); }

int threads_per_rank() {
  const int told = number_at_start(env::get("OMP_NUM_THREADS").value_or(""));
  return told > 0 ? told : launch::share_of_processors(local_world_size().value_or(1));
}

}  // namespace lockstep
