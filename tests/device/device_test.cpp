// Which devices a run uses: Lightning's table (fabric/utilities/device_parser.py and its tests).
#include <gmock/gmock.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/device/accelerator.h>
#include <lockstep/device/devices.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using test::expect_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A machine with so many CUDA devices, of which some have no memory to give.
struct FakeInventory final : DeviceInventory {
  explicit FakeInventory(int count, std::vector<int> occupied_ = {})
      : cuda(count), occupied(std::move(occupied_)) {}
  explicit FakeInventory(std::vector<std::string> names_)
      : cuda(static_cast<int>(names_.size())), names(std::move(names_)) {}
  int cuda_count() const override { return cuda; }
  std::vector<std::string> cuda_names() const override { return names; }
  bool is_usable_cuda(int index) const override { return std::ranges::count(occupied, index) == 0; }

  int cuda;
  std::vector<int> occupied;
  std::vector<std::string> names;
};

std::vector<int> on_cuda(const Devices& devices, int visible) {
  const auto plan = parse_devices("cuda", devices, FakeInventory(visible));
  EXPECT_EQ(plan.accelerator, "cuda");
  EXPECT_EQ(plan.count, static_cast<int>(plan.indices.size()));
  return plan.indices;
}

TEST(ParseDevices, CountsRanksOnCpus) {
  const FakeInventory many(8);
  for (const char* accelerator : {"auto", "cpu"}) {
    EXPECT_EQ(parse_devices(accelerator, "auto", many).count, 1);
    EXPECT_EQ(parse_devices(accelerator, 3, many).count, 3);
    EXPECT_EQ(parse_devices(accelerator, "3", many).accelerator, "cpu");
    EXPECT_THAT(parse_devices(accelerator, 3, many).indices, IsEmpty());
  }
}

TEST(ParseDevices, NamesTheValueThatIsNoneForCpus) {
  for (const Devices& devices :
       std::vector<Devices>{0, -2, -1, "1,3", Devices{2}, Devices{Devices::Indices{}}})
    expect_error<ConfigError>([&] { parse_devices("cpu", devices); },
                              {"devices", "\"" + devices.text() + "\"", "number >= 1"});
}

TEST(ParseDevices, ChoosesOnCudaWhatLightningChooses) {
  EXPECT_THAT(on_cuda("auto", 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(on_cuda(-1, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(on_cuda("-1", 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(on_cuda(1, 4), ElementsAre(0));
  EXPECT_THAT(on_cuda("3", 4), ElementsAre(0, 1, 2));
  EXPECT_THAT(on_cuda("2,", 4), ElementsAre(2));
  EXPECT_THAT(on_cuda("1, 3", 4), ElementsAre(1, 3));
  EXPECT_THAT(on_cuda({3, 1}, 4), ElementsAre(3, 1));
  EXPECT_THAT(parse_devices("gpu", {0}, FakeInventory(1)).indices, ElementsAre(0));
}

TEST(ParseDevices, RefusesOnCudaWhatLightningRefuses) {
  const auto refused = [](const Devices& devices, int visible, const std::string& why) {
    expect_error<ConfigError>([&] { on_cuda(devices, visible); },
                              {why, "\"" + devices.text() + "\"", std::to_string(visible) + " visible"});
  };
  for (const Devices& nothing : std::vector<Devices>{0, Devices{Devices::Indices{}}, -2})
    refused(nothing, 4, "nothing to run on");
  for (const Devices& all : std::vector<Devices>{"auto", -1}) refused(all, 0, "nothing to run on");
  for (const Devices& absent : std::vector<Devices>{5, Devices{-1}, Devices{4}, "0,8", Devices{0, -1}})
    refused(absent, 4, "not all of these are there");
  expect_error<ConfigError>([] { on_cuda({0, 0}, 4); }, {"named twice", "\"0,0\""});
  expect_error<ConfigError>([] { parse_devices("npu", 1); }, {"auto, cpu, cuda or gpu", "\"npu\""});
}

TEST(ParseDevices, LooksForNoOthersWhereTorchelasticShowsOne) {
  const FakeInventory one(1);
  EXPECT_THAT(parse_devices("cuda", 8, one, true).indices, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THROW(parse_devices("cuda", 8, one, false), ConfigError);
  EXPECT_THROW(parse_devices("cuda", {5}, one, true), ConfigError);
  EXPECT_THROW(parse_devices("cuda", 8, FakeInventory(2), true), ConfigError);
}

TEST(ParseDevices, TakesNames) {
  const FakeInventory machine({"GPU-aa", "GPU-ab", "GPU-cc"});
  const auto plan = parse_devices("gpu", "GPU-cc,GPU-aa", machine);
  EXPECT_THAT(plan.indices, ElementsAre(2, 0));
  EXPECT_THAT(plan.names, IsEmpty()) << "whole devices need not be hidden";
  expect_error<ConfigError>(
      [&] { parse_devices("gpu", "GPU-a", machine); },
      {"no or more than one device is called GPU-a", "GPU-aa, GPU-ab, GPU-cc", "nvidia-smi -L"});
  expect_error<ConfigError>([&] { parse_devices("gpu", "GPU-c,GPU-cc", machine); }, {"named twice"});
  expect_error<ConfigError>([&] { parse_devices("gpu", "MIG-1", FakeInventory(0)); }, {"there are none"});
  expect_error<ConfigError>([&] { parse_devices("cpu", "GPU-aa", machine); }, {"number >= 1"});
}

TEST(ParseDevices, GivesRanksPartsOfDevicesByName) {
  const FakeInventory machine({"MIG-11", "MIG-12", "GPU-bb"});
  EXPECT_THAT(parse_devices("gpu", "MIG-12", machine).names, ElementsAre("MIG-12"));
  const auto all = parse_devices("gpu", -1, machine);
  EXPECT_THAT(all.names, ElementsAre("MIG-11", "MIG-12", "GPU-bb"));
  EXPECT_EQ(device_of_rank(all, 1), c10::Device(c10::kCUDA, 0)) << "it sees no other";
  const auto before = env::get("CUDA_VISIBLE_DEVICES");
  show_device_of_rank(all, 1);
  EXPECT_EQ(env::get("CUDA_VISIBLE_DEVICES"), "MIG-12");
  show_device_of_rank({.accelerator = "cuda", .count = 1, .indices = {0}}, 0);
  EXPECT_EQ(env::get("CUDA_VISIBLE_DEVICES"), "MIG-12") << "a plan without names changes nothing";
  expect_error<ConfigError>([&] { show_device_of_rank(all, 3); }, {"local rank 3 has no device"});
  before ? ::setenv("CUDA_VISIBLE_DEVICES", before->c_str(), 1) : ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(DevicesToRunOn, TellsAcceleratorsThatAreNotBuiltFromUnknownOnes) {
  EXPECT_EQ(devices_to_run_on("cpu", 2).count, 2);
  expect_error<ConfigError>([] { devices_to_run_on("mps", 1); },
                            {"not built yet", "auto, gpu, cpu, cuda, xla", "\"mps\"", "docs/status.md"});
  expect_error<ConfigError>([] { devices_to_run_on("gpuu", 1); },
                            {"no such accelerator", "auto, gpu, cpu, cuda", "\"gpuu\""});
}

TEST(DevicesToRunOn, SaysWhatWasLookedForWhereAnAcceleratorIsNotThere) {
  if (find_accelerator("cuda")->count() > 0) {
    EXPECT_EQ(devices_to_run_on("gpu", 1).accelerator, "cuda");
    return;
  }
  const auto why = find_accelerator("cuda")->absence();
  EXPECT_THAT(why, ::testing::AnyOf(HasSubstr("libtorch_cuda.so"), HasSubstr("nvidia-smi")));
  for (const std::string name : {"gpu", "cuda"})
    expect_error<ConfigError>([&] { devices_to_run_on(name, 1); },
                              {"accelerator cuda is not there", "\"" + name + "\"", why});
}

TEST(DeviceOfRank, IsTheOneThatThePlanNames) {
  EXPECT_EQ(device_of_rank({.accelerator = "cpu", .count = 3}, 2), c10::Device(c10::kCPU));
  const DevicePlan plan{.accelerator = "cuda", .count = 2, .indices = {3, 1}};
  EXPECT_EQ(device_of_rank(plan, 0), c10::Device(c10::kCUDA, 3));
  EXPECT_EQ(device_of_rank(plan, 1), c10::Device(c10::kCUDA, 1));
  expect_error<ConfigError>([&] { device_of_rank(plan, 2); }, {"local rank 2 has no device", "2 devices"});
  const DevicePlan shared{.accelerator = "cuda", .count = 1, .indices = {0}};
  EXPECT_EQ(device_of_rank(shared, 5), c10::Device(c10::kCUDA, 0));
}

TEST(FindUsableCudaDevices, GivesTheFirstWithMemory) {
  const FakeInventory machine(4, {0, 2});
  EXPECT_THAT(find_usable_cuda_devices(-1, machine), ElementsAre(1, 3));
  EXPECT_THAT(find_usable_cuda_devices(2, machine), ElementsAre(1, 3));
  EXPECT_THAT(find_usable_cuda_devices(1, machine), ElementsAre(1));
  EXPECT_THAT(find_usable_cuda_devices(0, machine), IsEmpty());
  EXPECT_THAT(find_usable_cuda_devices(-1, FakeInventory(1, {0})), IsEmpty());
}

TEST(FindUsableCudaDevices, SaysWhyThereAreNotSoMany) {
  expect_error<ConfigError>(
      [] {
        find_usable_cuda_devices(3, FakeInventory(4, {0, 2}));
      },
      {"usable", "at most 2", "got 3", "occupied: 0, 2"});
  expect_error<ConfigError>([] { find_usable_cuda_devices(1, FakeInventory(0)); },
                            {"not so many", "at most 0", "got 1"});
  expect_error<ConfigError>([] { find_usable_cuda_devices(-2, FakeInventory(1)); }, {"got -2"});
}

TEST(FindUsableCudaDevices, AsksThisMachineWithoutFailing) {
  EXPECT_LE(find_usable_cuda_devices().size(), static_cast<std::size_t>(this_machine().cuda_count()));
}

}  // namespace
}  // namespace lockstep
