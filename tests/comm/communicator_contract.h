// What the contract suites of Communicator share: the worlds that they run in, and values by rank.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/testing/run_ranks.h>

#include "comm/contract_rank.h"
#include "support/contract_device.h"

namespace lockstep::testing {

/// A backend with a number of ranks.
struct World {
  const char* backend = "single";
  int ranks = 1;
  Reduction reduction = Reduction::kOrdered;
  bool is_checked = true;  ///< ranks agree before each collective
  at::DeviceType device = at::kCPU;
  bool shares_memory = true;  ///< else all goes through the backend
};

inline std::string name_of(const World& world) {
  return world.backend + std::to_string(world.ranks) +
         (world.reduction == Reduction::kFast ? "fast" : "ordered") + (world.is_checked ? "" : "unchecked") +
         (world.device == at::kCPU ? "" : "on" + c10::DeviceTypeName(world.device, /*lower_case=*/true)) +
         (world.shares_memory ? "" : "apart");
}

inline void PrintTo(const World& world, std::ostream* out) { *out << name_of(world); }

/// That of which this process is a rank. A single rank agrees with nobody.
inline std::vector<World> own_worlds(const ContractRank& own, Reduction reduction) {
  std::vector<World> worlds;
  for (const bool is_checked : {true, false})
    if (own.size > 1 || !is_checked)
      worlds.push_back({own.backend.c_str(), own.size, reduction, is_checked, contract_device()});
  return worlds;
}

/// Every backend; one more is one line more.
inline std::vector<World> worlds() {
  constexpr auto kOrdered = Reduction::kOrdered;
  if (const auto& own = contract_rank()) return own_worlds(*own, kOrdered);
  std::vector<World> worlds{{"single", 1},
                            {"sockets", 2},
                            {"sockets", 3},
                            {"sockets", 4},
                            {"sockets", 2, kOrdered, false},
                            {"sockets", 3, kOrdered, false},
                            {"sockets", 2, kOrdered, true, at::kCPU, false},
                            {"sockets", 3, kOrdered, true, at::kCPU, false},
                            {"sockets", 4, kOrdered, true, at::kCPU, false},
                            {"sockets", 3, kOrdered, false, at::kCPU, false},
                            {"gloo", 2, kOrdered, true, at::kCPU, false},
                            {"gloo", 3, kOrdered, true, at::kCPU, false},
                            {"gloo", 2, kOrdered, false, at::kCPU, false}};
  for (auto& world : worlds) world.device = contract_device();
  return worlds;
}

inline std::vector<World> fast_worlds() {
  if (const auto& own = contract_rank()) return own_worlds(*own, Reduction::kFast);
  return {{"gloo", 2, Reduction::kFast, true, contract_device()},
          {"gloo", 3, Reduction::kFast, true, contract_device()}};
}

/// Sets whether ranks that are made during its life share memory.
class SharedMemorySwitch {
 public:
  explicit SharedMemorySwitch(bool is_on) { env::set("LOCKSTEP_SHARED_MEMORY", is_on ? "1" : "0"); }
  ~SharedMemorySwitch() { env::unset("LOCKSTEP_SHARED_MEMORY"); }
  SharedMemorySwitch(const SharedMemorySwitch&) = delete;
  SharedMemorySwitch& operator=(const SharedMemorySwitch&) = delete;
};

class Contract : public ::testing::TestWithParam<World> {
 protected:
  static int size() { return GetParam().ranks; }
  static at::TensorOptions of(at::ScalarType dtype = at::kFloat) {
    const auto& own = contract_rank();
    return at::TensorOptions(contract_device_of_rank(own ? own->rank : 0)).dtype(dtype);
  }
  /// Runs `body` once per rank.
  static void run(const std::function<void(Communicator)>& body) {
    const SharedMemorySwitch memory(GetParam().shares_memory);
    const bool is_process = contract_rank().has_value();
    const RunRanksOptions options{.reduction = GetParam().reduction,
                                  .check_collectives = GetParam().is_checked,
                                  .backend = size() == 1 && !is_process ? "auto" : GetParam().backend};
    is_process ? run_contract_rank(body, options) : run_ranks(size(), body, options);
  }
};

inline std::string name_of_world(const ::testing::TestParamInfo<World>& test) { return name_of(test.param); }

/// Values that tell rank and position apart in every dtype, and whose reductions are exact: rank r's are
/// (r + position) mod 4, plus 1 unless bool.
inline at::Tensor values(int rank, at::IntArrayRef shape, const at::TensorOptions& options) {
  const auto numbers = (at::arange(c10::multiply_integers(shape), at::kLong) + rank).remainder(4).view(shape);
  const bool is_bool = c10::typeMetaToScalarType(options.dtype()) == at::kBool;
  return (is_bool ? numbers.gt(1) : numbers + 1).to(options);
}

/// One tensor per rank, each with what `make` gives for it.
template <class Make>
std::vector<at::Tensor> by_rank(int size, Make make) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < size; ++rank) tensors.push_back(make(rank));
  return tensors;
}

}  // namespace lockstep::testing
