#include <gtest/gtest.h>
#include <lockstep/base/error.h>
#include <lockstep/device/device.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

TEST(ParseDevices, CountsRanksOnCpus) {
  EXPECT_EQ(parse_devices("auto", "auto").count, 1);
  EXPECT_EQ(parse_devices("cpu", "3").count, 3);
}

TEST(ParseDevices, NamesTheValueItRefuses) {
  for (const char* devices : {"0", "-2", "-1", "abc", "1,3", "2,", "", "1.5"}) {
    try {
      parse_devices("cpu", devices);
      ADD_FAILURE() << "accepted devices " << devices;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("\"" + std::string(devices) + "\""), std::string::npos)
          << error.what();
    }
  }
}

TEST(ParseDevices, TellsAcceleratorsThatAreNotBuiltFromUnknownOnes) {
  for (const std::string name : {"gpu", "cuda", "mps", "tpu"})
    test::expect_error<ConfigError>([&] { parse_devices(name, "1"); },
                                    {"not built yet", "auto or cpu", "\"" + name + "\"", "docs/status.md"});
  test::expect_error<ConfigError>([] { parse_devices("gpuu", "1"); },
                                  {"no such accelerator", "auto or cpu", "\"gpuu\""});
}

}  // namespace
}  // namespace lockstep
