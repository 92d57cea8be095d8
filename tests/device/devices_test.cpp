// The forms of the `devices` option.
#include <gmock/gmock.h>
#include <lockstep/base/error.h>
#include <lockstep/base/options.h>
#include <lockstep/device/devices.h>

#include <type_traits>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pointee;

static_assert(!std::is_constructible_v<Devices, bool> && !std::is_constructible_v<Devices, double>,
              "neither true nor 0.5 is a number of devices");

TEST(Devices, AreANumberAListOrAuto) {
  EXPECT_TRUE(Devices().is_auto());
  EXPECT_THAT(Devices(4).number(), Pointee(4));
  EXPECT_THAT(Devices({2}).indices(), Pointee(ElementsAre(2)));
  EXPECT_EQ(Devices(4).indices(), nullptr);
  EXPECT_EQ(Devices({1, 3}).number(), nullptr);
}

TEST(Devices, AreReadFromText) {
  EXPECT_TRUE(Devices("auto").is_auto());
  EXPECT_THAT(Devices(" -1 ").number(), Pointee(-1));
  EXPECT_THAT(Devices("3").number(), Pointee(3));
  EXPECT_THAT(Devices("2,").indices(), Pointee(ElementsAre(2)));
  EXPECT_THAT(Devices("1, 3").indices(), Pointee(ElementsAre(1, 3)));
  EXPECT_THAT(Devices("[1,3]").indices(), Pointee(ElementsAre(1, 3)));
  EXPECT_THAT(Devices("[]").indices(), Pointee(IsEmpty()));
  EXPECT_THAT(Devices("MIG-8b1e").names(), Pointee(ElementsAre("MIG-8b1e")));
  EXPECT_THAT(Devices("[GPU-5f3c, MIG-8b1e]").names(), Pointee(ElementsAre("GPU-5f3c", "MIG-8b1e")));
  EXPECT_EQ(Devices("1").names(), nullptr);
}

TEST(Devices, PrintWhatReadsTheSame) {
  for (const auto& devices : {Devices(), Devices(4), Devices(-1), Devices({2}), Devices({1, 3}),
                              Devices(Devices::Indices{}), Devices("GPU-5f3c,MIG-8b1e")})
    EXPECT_EQ(Devices(devices.text()), devices) << devices.text();
}

TEST(Devices, RefuseOtherText) {
  for (const std::string text : {"abc", "", "1.5", "0.1", "true", "1;3", "1,x", "[1", "99999999999",
                                 "MIG-8b1e,1", "1,GPU-5f3c", "0", "-2"})
    test::expect_error<ConfigError>([&] { Devices devices(text); },
                                    {"devices", "a number of devices", "\"" + text + "\""});
}

struct Options {
  Devices devices = {};
};
void describe(OptionVisitor& visitor, Options& options) {
  visitor.field("devices", options.devices, "Devices of this node");
}

Devices given(OptionText text) {
  Options options;
  OptionTree tree;
  tree.add("run", options);
  const std::vector<Assignment> given{{.key = "run.devices", .value = std::move(text)}};
  tree.apply(given, "run");
  return options.devices;
}

TEST(Devices, MayBeAListInYaml) {
  OptionText list{.kind = OptionText::Kind::kList, .items = {{.text = "1"}, {.text = "3"}}};
  EXPECT_EQ(given(list), Devices({1, 3}));
  EXPECT_EQ(given({.text = "1, 3"}), Devices({1, 3}));
  EXPECT_EQ(given({.kind = OptionText::Kind::kList, .items = {{.text = "2"}}}), Devices({2}));
  list.items.push_back({.kind = OptionText::Kind::kMap});
  test::expect_error<ConfigError>([&] { given(list); }, {"run.devices", "list of indices", "a list"});
}

}  // namespace
}  // namespace lockstep
