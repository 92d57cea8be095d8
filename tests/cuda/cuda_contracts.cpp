// The contract suites on the first GPU of this machine (tools/gpu_check.sh): ranks that are threads are
// staged, those of tests/contracts/contract_ranks.py are connected by NCCL. Ends with 2 where there is no
// GPU, and says why; it can list its tests without one.
#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/base/env.h>
#include <lockstep/device/accelerator.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/parallel/dispatch/engine_hooks.h>

#include "comm/contract_rank.h"
#include "support/contract_device.h"

namespace lockstep::testing {

c10::DeviceType contract_device() { return c10::DeviceType::CUDA; }

// Ranks share devices where there are not enough.
c10::Device contract_device_of_rank(int rank) {
  return {contract_device(), static_cast<c10::DeviceIndex>(rank % find_accelerator("cuda")->count())};
}

// Room for sums in another order, through six steps; an estimate, as nothing was compared on CUDA yet.
double contract_difference(bool is_narrow) { return is_narrow ? 3e-2 : 1e-4; }

std::string contract_accelerator() { return "cuda"; }

std::string end_on_contract_device() {
  synchronize(device_in_use());
  detail::begin_on_device(*find_accelerator("cpu"), at::kCPU);
  return {};
}

namespace {

// Nobody has asked LibTorch for CUDA before, nor computed gradients.
void begin() {
  // Ranks that are threads share a staging stream, in which the gate of one would hold up another.
  env::set("LOCKSTEP_CUDA_GATES", "0");
  const auto& own = contract_rank();
  detail::begin_on_device(*find_accelerator("cuda"), contract_device_of_rank(own ? own->rank : 0));
  install_autograd_engine();
  detail::begin_on_device(*find_accelerator("cpu"), at::kCPU);
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (::testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  const auto& cuda = *lockstep::find_accelerator("cuda");
  if (cuda.count() == 0) {
    std::fprintf(stderr, "cuda_contract_tests: %s\n", cuda.absence().c_str());
    return 2;
  }
  try {
    lockstep::testing::begin();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_contract_tests: %s\n", error.what());
    return 1;
  }
  return RUN_ALL_TESTS();
}
