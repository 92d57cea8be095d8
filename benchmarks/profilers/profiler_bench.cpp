// What one measured action costs: without a profiler, and with each of them.
//
// Usage: bench_profiler RESULTS. A case is the name of the profiler; the peer is peers/profiler.py.
#include <string>

#include <lockstep/profilers/profilers.h>

#include "results.h"

namespace {

namespace ls = lockstep;

constexpr int kEvents = 1'000'000;

// The scope of an action that does nothing. The compiler may not know whether there is a profiler.
double ns_per_event(ls::Profiler* given) {
  static const ls::Action action("[Strategy]SingleDeviceStrategy.training_step");
  ls::Profiler* volatile profiler = given;
  const auto repeat = [&](int events) {
    for (int index = 0; index < events; ++index) const ls::ProfileScope scope(profiler, action);
  };
  repeat(kEvents / 10);
  const auto start = bench::now_ns();
  repeat(kEvents);
  return static_cast<double>(bench::now_ns() - start) / kEvents;
}

}  // namespace

int main(int, char** argv) {
  const bench::Results results(argv[1]);
  results.add("off", ns_per_event(nullptr));
  for (const auto& name : ls::profiler_names())
    results.add(name, ns_per_event(ls::make_profiler(name).get()));
}
