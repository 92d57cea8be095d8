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

TEST(Nearest, AsksTheQuestion) {
  EXPECT_EQ(did_you_mean("devices", "--"), "did you mean --devices?");
  EXPECT_EQ(did_you_mean(std::nullopt), "");
}

}  // namespace
}  // namespace lockstep
