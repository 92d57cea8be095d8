// Which liblockstep_cuda.so fits which process.
#include "device/cuda_plugin.h"

#include <gmock/gmock.h>

#include <functional>
#include <string>

namespace lockstep::detail {
namespace {

const CudaVersions kBuilt{.torch = "2.13", .cuda = "13", .nccl_header = "2.29.7"};
const CudaVersions kHere{.torch = "2.13", .cuda = "13", .nccl_header = "2.29.7", .nccl = "2.29.7"};

// What does not fit in a process that differs from kHere.
ErrorParts fault_with(const std::function<void(CudaVersions&)>& change) {
  auto here = kHere;
  change(here);
  return fault_between(kBuilt, here).value_or(ErrorParts{});
}

TEST(CudaPlugin, SaysInItsFileWhatItWasBuiltWith) {
  const std::string noise(1000, '\0');
  const std::string text = LOCKSTEP_CUDA_BUILD_MARK "torch=2.13 cuda=13 nccl=2.29.7;";
  EXPECT_EQ(versions_in(noise + text + noise), kBuilt);
  EXPECT_EQ(versions_in(LOCKSTEP_CUDA_BUILD_MARK + noise + text), kBuilt)
      << "the mark of another text is no end";
  EXPECT_EQ(versions_in(noise), std::nullopt);
  EXPECT_EQ(versions_in(text.substr(0, text.size() - 1)), std::nullopt) << "cut off";
}

TEST(CudaPlugin, FitsTheVersionsThatItWasBuiltWith) {
  EXPECT_FALSE(fault_between(kBuilt, kHere));
  EXPECT_EQ(fault_with([](auto& here) { here.nccl = "2.32.0"; }).what, "") << "NCCL's library may be newer";
}

TEST(CudaPlugin, IsRefusedByName) {
  const auto other_torch = fault_with([](auto& here) { here.torch = "2.14"; });
  EXPECT_EQ(other_torch.what, "liblockstep_cuda.so was built for another LibTorch");
  EXPECT_EQ(other_torch.expected + " / " + other_torch.got, "LibTorch 2.13 / LibTorch 2.14");
  EXPECT_THAT(other_torch.hint, ::testing::HasSubstr("make cuda"));
  EXPECT_EQ(fault_with([](auto& here) { here.cuda = "12"; }).got, "CUDA 12");
  EXPECT_EQ(fault_with([](auto& here) { here.nccl_header = "2.28.9"; }).got, "one of NCCL 2.28.9");
  EXPECT_EQ(fault_with([](auto& here) { here.nccl_header = ""; }).got, "a LibTorch without NCCL");
  for (const std::string library : {"2.29.3", "2.9.7", "3.0.0"})
    EXPECT_EQ(fault_with([&](auto& here) { here.nccl = library; }).got, "NCCL " + library);
  EXPECT_EQ(fault_with([](auto& here) { here.nccl = ""; }).got, "no NCCL");
}

}  // namespace
}  // namespace lockstep::detail
