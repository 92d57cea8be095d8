#include <lockstep/data/dataset.h>

#include <cmath>
#include <numeric>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/data/sampler.h>

namespace lockstep::detail {

SplitOrder split_order(std::int64_t size, double fraction, const SplitOptions& options) {
  if (!(fraction > 0 && fraction < 1)) {
    throw ConfigError("data", {.what = "split: fraction is out of range",
                               .expected = "a number between 0 and 1",
                               .got = std::to_string(fraction)});
  }
  const std::int64_t first = std::llround(fraction * static_cast<double>(size));
  if (first == 0 || first == size) {
    throw DataError(
        "data", {.what = "split: one part would be empty",
                 .got = "fraction " + std::to_string(fraction) + " of " + std::to_string(size) + " samples"});
  }
  auto order = options.shuffle ? random_permutation(size, options.seed)
                               : std::vector<std::int64_t>(static_cast<std::size_t>(size));
  if (!options.shuffle) std::iota(order.begin(), order.end(), 0);
  return {.first = {order.begin(), order.begin() + first}, .second = {order.begin() + first, order.end()}};
}

void check_indices(std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t index : indices) {
    if (index >= 0 && index < size) continue;
    throw DataError("data", {.what = "index " + std::to_string(index) + " is outside the data set",
                             .expected = "0 <= index < " + std::to_string(size)});
  }
}

std::vector<std::int64_t> select(std::span<const std::int64_t> from,
                                 std::span<const std::int64_t> positions) {
  check_indices(positions, static_cast<std::int64_t>(from.size()));
  std::vector<std::int64_t> selected;
  selected.reserve(positions.size());
  for (const std::int64_t position : positions) selected.push_back(from[static_cast<std::size_t>(position)]);
  return selected;
}

}  // namespace lockstep::detail
