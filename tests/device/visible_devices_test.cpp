// Counting CUDA devices without CUDA.
#include "base/visible_devices.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/paths.h"

namespace lockstep::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<NvidiaDevice> kFour = {
    {.uuid = "GPU-aa11"}, {.uuid = "GPU-ab22"}, {.uuid = "GPU-cc33"}, {}};

std::vector<std::string> shown(const char* variable, const std::vector<NvidiaDevice>& devices = kFour) {
  return visible_nvidia_devices(variable != nullptr ? std::optional<std::string>(variable) : std::nullopt,
                                devices);
}

TEST(VisibleDevices, AreThoseThatCudaWouldShow) {
  EXPECT_THAT(shown(nullptr), ElementsAre("GPU-aa11", "GPU-ab22", "GPU-cc33", "3"));
  EXPECT_THAT(shown(""), IsEmpty());
  EXPECT_THAT(shown("1,3"), ElementsAre("GPU-ab22", "3"));
  EXPECT_THAT(shown(" 0 , 2 "), ElementsAre("GPU-aa11", "GPU-cc33"));
  EXPECT_THAT(shown("GPU-cc33,GPU-ab"), ElementsAre("GPU-cc33", "GPU-ab22"));
}

TEST(VisibleDevices, EndAtTheFirstThatIsNone) {
  EXPECT_THAT(shown("0,9,1"), ElementsAre("GPU-aa11"));
  EXPECT_THAT(shown("-1"), IsEmpty());
  EXPECT_THAT(shown("0,1x,2"), ElementsAre("GPU-aa11"));
  EXPECT_THAT(shown("GPU-a,0"), IsEmpty());  // of two devices
  EXPECT_THAT(shown("1,1"), IsEmpty());
  EXPECT_THAT(shown("MIG-11,0"), IsEmpty());
}

TEST(VisibleDevices, ArePartsWhereADeviceIsInMigMode) {
  const std::vector<NvidiaDevice> devices = {{.uuid = "GPU-aa", .parts = {"MIG-11", "MIG-12"}},
                                             {.uuid = "GPU-bb"}};
  EXPECT_THAT(shown(nullptr, devices), ElementsAre("MIG-11", "MIG-12", "GPU-bb"));
  EXPECT_THAT(shown("MIG-12,1", devices), ElementsAre("MIG-12", "GPU-bb"));
  EXPECT_THAT(shown("0", devices), ElementsAre("MIG-11", "MIG-12"));
  EXPECT_THAT(shown("GPU-aa", devices), ElementsAre("MIG-11", "MIG-12"));
  EXPECT_THAT(shown("MIG-1,1", devices), IsEmpty());  // of two parts
  EXPECT_THAT(shown("MIG-11,0", devices), IsEmpty());
}

// dlopen() gives a library that is there already to whoever asks for its name.
TEST(VisibleDevices, ComeFromNvml) {
  const auto path = test::in_build("tests/device/libnvidia-ml.so.1").string();
  const std::unique_ptr<void, int (*)(void*)> fake(::dlopen(path.c_str(), RTLD_NOW), ::dlclose);
  ASSERT_NE(fake, nullptr) << ::dlerror();
  const auto users = reinterpret_cast<int (*)()>(::dlsym(fake.get(), "fake_nvml_users"));
  const auto devices = nvml_devices();
  EXPECT_EQ(users(), 0) << "nvmlShutdown() was not called";
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[0].uuid + devices[1].uuid, "GPU-fake");
  EXPECT_THAT(devices[0].parts, IsEmpty());
  EXPECT_THAT(shown("GPU-fake", devices), ElementsAre("GPU-fake"));
  EXPECT_EQ(least_nvidia_memory(shown(nullptr, devices), devices), 16LL << 30);
  EXPECT_EQ(least_nvidia_memory(shown("1", devices), devices), 24LL << 30);
  EXPECT_EQ(least_nvidia_memory(shown("", devices), devices), std::nullopt);
  ::setenv("FAKE_MIG", "1", 1);
  const auto divided = nvml_devices();
  ::unsetenv("FAKE_MIG");
  ASSERT_EQ(divided.size(), 2U);
  EXPECT_THAT(divided[0].parts, ElementsAre("MIG-fake-0", "MIG-fake-2"));
  EXPECT_EQ(least_nvidia_memory(shown("MIG-fake-2", divided), divided), 5LL << 30);
}

}  // namespace
}  // namespace lockstep::detail
