#include <vector>

#include <gtest/gtest.h>
#include <lockstep/base/error.h>

namespace lockstep {
namespace {

const std::vector<std::string> kKnown{"trainer.max_epochs", "trainer.devices", "data.batch_size", "ddp",
                                      "fsdp"};

TEST(Nearest, FindsTheNameWithTheFewestEdits) {
  EXPECT_EQ(nearest_name("trainer.max_epoch", kKnown), "trainer.max_epochs");
  EXPECT_EQ(nearest_name("trainer.dveices", kKnown), "trainer.devices");
  EXPECT_EQ(nearest_name("fdsp", kKnown), "fsdp");
}

TEST(Nearest, TakesCaseAndDashesAsEqual) {
  EXPECT_EQ(nearest_name("Trainer.Max-Epochs", kKnown), "trainer.max_epochs");
}

TEST(Nearest, FindsNothingThatIsFar) {
  EXPECT_EQ(nearest_name("optimizer.momentum", kKnown), std::nullopt);
  EXPECT_EQ(nearest_name("", kKnown), std::nullopt);
  EXPECT_EQ(nearest_name("x", {}), std::nullopt);
  EXPECT_EQ(nearest_name(std::string(100'000, 'a'), kKnown), std::nullopt);
}

TEST(Nearest, ComparesTheLastPartsOfKeys) {
  EXPECT_EQ(nearest_key("max_epochs", kKnown), "trainer.max_epochs");
  EXPECT_EQ(nearest_key("model.batch_sise", kKnown), "data.batch_size");
}

TEST(Nearest, PrefersANameThatGoesOnWhereItEnds) {
  const std::vector<std::string> known{"a.pin_memory", "a.find_unused_parameters",
                                       "a.finding",    "fp16_compress",
                                       "bf16",         "fp16_compress_twice"};
  EXPECT_EQ(nearest_key("a.find_unused", known), "a.find_unused_parameters");
  EXPECT_EQ(
      nearest_name("fp16", std::vector<std::string>{"power_sgd", "fp16_compress_twice", "fp16_compress"}),
      "fp16_compress");
  EXPECT_EQ(nearest_name("bf17", known), "bf16");            // one edit away comes first
  EXPECT_EQ(nearest_name("a", known), std::nullopt);         // too short
  EXPECT_EQ(nearest_name("trainer", kKnown), std::nullopt);  // a name of many options
}

TEST(Nearest, AsksTheQuestion) {
  EXPECT_EQ(did_you_mean("devices", "--"), "did you mean --devices?");
  EXPECT_EQ(did_you_mean(std::nullopt), "");
}

}  // namespace
}  // namespace lockstep
