#include <lockstep/metrics/monitor_mode.h>

namespace lockstep {

std::span<const OptionName<MonitorMode>> option_names(MonitorMode) {
  static constexpr OptionName<MonitorMode> kNames[] = {{"min", MonitorMode::kMin},
                                                       {"max", MonitorMode::kMax}};
  return kNames;
}

}  // namespace lockstep
