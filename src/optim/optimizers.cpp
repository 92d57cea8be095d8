#include <lockstep/optim/optimizers.h>

#include <iterator>

namespace lockstep {

Optimizers several_optimizers(std::vector<Optimizers> optimizers) {
  if (optimizers.empty()) return {};
  auto first = std::move(optimizers.front());
  first.others.insert(first.others.end(), std::make_move_iterator(optimizers.begin() + 1),
                      std::make_move_iterator(optimizers.end()));
  return first;
}

}  // namespace lockstep
