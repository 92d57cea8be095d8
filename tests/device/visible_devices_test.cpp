// Counting CUDA devices without CUDA.
#include "base/visible_devices.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <memory>

#include "support/paths.h"

namespace lockstep::detail {
namespace {

const std::vector<std::string> kFour = {"GPU-aa11", "GPU-ab22", "GPU-cc33", "GPU-dd44"};

TEST(VisibleDevices, AreThoseThatCudaWouldShow) {
  EXPECT_EQ(count_visible(std::nullopt, kFour), 4);
  EXPECT_EQ(count_visible("", kFour), 0);
  EXPECT_EQ(count_visible("1,3", kFour), 2);
  EXPECT_EQ(count_visible(" 0 , 2 ", kFour), 2);
  EXPECT_EQ(count_visible("GPU-cc33,GPU-dd", kFour), 2);
}

TEST(VisibleDevices, EndAtTheFirstThatIsNone) {
  EXPECT_EQ(count_visible("0,9,1", kFour), 1);
  EXPECT_EQ(count_visible("-1", kFour), 0);
  EXPECT_EQ(count_visible("0,1x,2", kFour), 1);
  EXPECT_EQ(count_visible("GPU-a,0", kFour), 0);  // of two devices
  EXPECT_EQ(count_visible("1,1", kFour), 0);
}

// dlopen() gives a library that is there already to whoever asks for its name.
TEST(VisibleDevices, ComeFromNvml) {
  const auto path = test::in_build("tests/device/libnvidia-ml.so.1").string();
  const std::unique_ptr<void, int (*)(void*)> fake(::dlopen(path.c_str(), RTLD_NOW), ::dlclose);
  ASSERT_NE(fake, nullptr) << ::dlerror();
  const auto users = reinterpret_cast<int (*)()>(::dlsym(fake.get(), "fake_nvml_users"));
  EXPECT_THAT(nvml_uuids(), ::testing::ElementsAre("GPU-fake", ""));
  EXPECT_EQ(users(), 0) << "nvmlShutdown() was not called";
  EXPECT_EQ(count_visible("GPU-fake", nvml_uuids()), 1);
}

}  // namespace
}  // namespace lockstep::detail
