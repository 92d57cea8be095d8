// The table of accelerators, gates in streams, and numbers that are read late.
#include <gmock/gmock.h>
#include <lockstep/base/error.h>
#include <lockstep/device/accelerator.h>
#include <lockstep/device/scalar.h>
#include <lockstep/device/torch_device.h>

#include <ATen/ATen.h>

#include <atomic>
#include <thread>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using test::expect_error;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct NamedAccelerator final : Accelerator {
  explicit NamedAccelerator(std::string_view its_name) : name_(its_name) {}
  std::string_view name() const override { return name_; }
  std::vector<std::string_view> aliases() const override { return {"other-"}; }
  c10::DeviceType type() const override { return c10::DeviceType::XPU; }
  int count() const override { return 0; }

 private:
  std::string_view name_;
};

TEST(Accelerators, AreFoundByNameAliasAndType) {
  EXPECT_THAT(accelerator_names(), StartsWith("cpu, cuda"));
  ASSERT_NE(find_accelerator("gpu"), nullptr);
  EXPECT_EQ(find_accelerator("gpu"), find_accelerator("cuda"));
  EXPECT_EQ(find_accelerator(c10::DeviceType::CUDA), find_accelerator("cuda"));
  EXPECT_EQ(find_accelerator("cpu")->count(), 1);
  EXPECT_EQ(find_accelerator("npu"), nullptr);
}

TEST(Accelerators, WithoutDevicesAreNotTheBest) {
  EXPECT_EQ(best_accelerator().name(), find_accelerator("cuda")->count() == 0 ? "cpu" : "cuda");
}

TEST(Accelerators, HaveNamesOfTheirOwn) {
  for (const auto* name : {"cuda", "gpu", "auto"})
    expect_error<ConfigError>([&] { register_accelerator(std::make_shared<NamedAccelerator>(name)); },
                              {"taken", "auto, cpu, cuda", name});
  register_accelerator(std::make_shared<NamedAccelerator>("unheard-of"));
  EXPECT_THAT(accelerator_names(), HasSubstr("unheard-of"));
  EXPECT_EQ(find_accelerator("other-"), find_accelerator("unheard-of"));
  EXPECT_EQ(best_accelerator().name(), find_accelerator("cuda")->count() > 0 ? "cuda" : "cpu");
}

TEST(StreamGate, HoldsTheStreamUntilTheHostOpensIt) {
  StreamGate gate;
  std::atomic<int> state = 0;
  std::thread stream([&] {
    state = 1;
    gate.pass();
    state = 2;
  });
  gate.await_arrival();
  EXPECT_EQ(state, 1);
  gate.open();
  stream.join();
  EXPECT_EQ(state, 2);
}

TEST(StreamGate, LetsAStreamPassThatComesLate) {
  StreamGate gate;
  gate.open();
  gate.await_arrival();
  gate.pass();
}

TEST(TorchDevice, OfTheCpuHasNothingToDo) {
  const at::Device cpu(at::kCPU);
  make_current(cpu);
  synchronize(cpu);
  EXPECT_EQ(memory_of(cpu).allocated, 0);
  const auto tensor = at::ones({3});
  EXPECT_TRUE(to_device(tensor, cpu).is_same(tensor));
  EXPECT_FALSE(to_device({}, cpu).defined());
  EXPECT_EQ(device_in_use(), cpu);
}

TEST(Scalar, IsReadAtOnceFromTheCpu) {
  auto tensor = at::full({1}, 2.5);
  const Scalar scalar = tensor;
  tensor.fill_(7);
  EXPECT_FALSE(scalar.is_on_device());
  EXPECT_EQ(scalar, 2.5);
  EXPECT_EQ(Scalar().value(), 0);
  EXPECT_EQ(Scalar(at::full({}, 3, at::kLong)).value(), 3);
}

}  // namespace
}  // namespace lockstep
