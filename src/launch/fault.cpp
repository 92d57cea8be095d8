#include <lockstep/launch/fault.h>

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <lockstep/base/env.h>

namespace lockstep {

void inject(const Fault& fault, int rank, std::int64_t step) {
  if (fault.kind == FaultKind::kNone || fault.rank != rank || fault.step != step) return;
  if (env::get_int("TORCHELASTIC_RESTART_COUNT", 0) > 0) return;
  switch (fault.kind) {
    case FaultKind::kNone:
      return;
    case FaultKind::kKill:
      std::raise(SIGKILL);
      return;
    case FaultKind::kExit:
      ::_exit(3);
    case FaultKind::kThrow:
      throw std::runtime_error("injected fault at step " + std::to_string(step));
    case FaultKind::kAbort:
      std::abort();
    case FaultKind::kStop:
      std::raise(SIGSTOP);
      return;
    case FaultKind::kHang:
      while (true) ::pause();
  }
}

std::span<const OptionName<FaultKind>> option_names(FaultKind) {
  static constexpr OptionName<FaultKind> kNames[] = {
      {"none", FaultKind::kNone},   {"kill", FaultKind::kKill},   {"exit", FaultKind::kExit},
      {"throw", FaultKind::kThrow}, {"abort", FaultKind::kAbort}, {"stop", FaultKind::kStop},
      {"hang", FaultKind::kHang}};
  return kNames;
}

void describe(OptionVisitor& v, Fault& fault) {
  v.field("kind", fault.kind, "What happens to the rank");
  v.field("rank", fault.rank, "The global rank", at_least(0));
  v.field("step", fault.step, "After this many optimizer steps", at_least(0));
}

}  // namespace lockstep
