#include <lockstep/state/state_dict_type.h>

namespace lockstep {

std::span<const OptionName<StateDictType>> option_names(StateDictType) {
  static constexpr OptionName<StateDictType> kNames[] = {{"full", StateDictType::kFull},
                                                         {"sharded", StateDictType::kSharded}};
  return kNames;
}

}  // namespace lockstep
