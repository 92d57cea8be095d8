#include "parallel/joining_options.h"

namespace lockstep {

std::span<const OptionName<StartMethod>> option_names(StartMethod) {
  static constexpr OptionName<StartMethod> kNames[] = {
      {"popen", StartMethod::kAuto}, {"fork", StartMethod::kFork}, {"spawn", StartMethod::kSpawn}};
  return kNames;
}

std::span<const OptionName<Reduction>> option_names(Reduction) {
  static constexpr OptionName<Reduction> kNames[] = {{"ordered", Reduction::kOrdered},
                                                     {"fast", Reduction::kFast}};
  return kNames;
}

}  // namespace lockstep
