#include "parallel/sharded/use_predictor.h"

namespace lockstep::detail {

std::optional<std::size_t> UsePredictor::next_after(std::size_t unit, UsePhase phase) {
  const auto before = last_ ? *unit_ + 1 : 0;
  if (last_) next_[*last_] = unit;
  const Context context =
      (static_cast<Context>(phase) << 62) | (static_cast<Context>(before) << 31) | static_cast<Context>(unit);
  unit_ = unit;
  last_ = context;
  const auto found = next_.find(context);
  return found == next_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace lockstep::detail
