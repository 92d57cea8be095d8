// What the contract suites of Communicator share: the worlds that they run in, and values by rank.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include <lockstep/comm/communicator.h>
#include <lockstep/testing/run_ranks.h>

namespace lockstep::testing {

/// A backend with a number of ranks.
struct World {
  const char* backend = "single";
  int ranks = 1;
  Reduction reduction = Reduction::kOrdered;
  bool is_checked = true;  ///< ranks agree before each collective
};

inline std::string name_of(const World& world) {
  return world.backend + std::to_string(world.ranks) +
         (world.reduction == Reduction::kFast ? "fast" : "ordered") + (world.is_checked ? "" : "unchecked");
}

inline void PrintTo(const World& world, std::ostream* out) { *out << name_of(world); }

/// Every backend; one more is one line more.
inline const auto kWorlds = ::testing::Values(World{"single", 1}, World{"gloo", 2}, World{"gloo", 3},
                                              World{"gloo", 4}, World{"gloo", 2, Reduction::kOrdered, false},
                                              World{"gloo", 3, Reduction::kOrdered, false});
inline const auto kFastWorlds =
    ::testing::Values(World{"gloo", 2, Reduction::kFast}, World{"gloo", 3, Reduction::kFast});

class Contract : public ::testing::TestWithParam<World> {
 protected:
  static int size() { return GetParam().ranks; }
  /// Runs `body` once per rank.
  static void run(const std::function<void(Communicator)>& body) {
    run_ranks(size(), body, {.reduction = GetParam().reduction, .check_collectives = GetParam().is_checked});
  }
};

inline std::string name_of_world(const ::testing::TestParamInfo<World>& test) { return name_of(test.param); }

/// Values that tell rank and position apart in every dtype, and whose reductions are exact: rank r's are
/// (r + position) mod 4, plus 1 unless bool.
inline at::Tensor values(int rank, at::IntArrayRef shape, at::ScalarType dtype) {
  const auto numbers = (at::arange(c10::multiply_integers(shape), at::kLong) + rank).remainder(4).view(shape);
  return dtype == at::kBool ? numbers.gt(1) : (numbers + 1).to(dtype);
}

/// One tensor per rank, each with what `make` gives for it.
template <class Make>
std::vector<at::Tensor> by_rank(int size, Make make) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < size; ++rank) tensors.push_back(make(rank));
  return tensors;
}

}  // namespace lockstep::testing
