#include <lockstep/launch/fault.h>

namespace lockstep {

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
