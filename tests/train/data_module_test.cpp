#include <gmock/gmock.h>

#include <lockstep/data/dataset.h>
#include <lockstep/torch.h>
#include <lockstep/train/data_module.h>

#include "data/recorder.h"

namespace lockstep {
namespace {

using test::batches_of;
using test::Indices;
using test::Recorder;
using ::testing::ElementsAre;

/// Notes what is called.
struct Noting final : DataModule<Indices> {
  void prepare_data() override { calls.push_back("prepare_data"); }
  bool prepare_data_per_node() const override { return per_node; }
  void setup(Stage stage) override {
    calls.push_back("setup " + std::string(stage_name(stage)));
    data = std::make_shared<Recorder>(4);
  }
  std::optional<Loader<Indices>> train_dataloader() override { return loader(data, {.batch_size = 2}); }

  bool per_node = true;
  std::vector<std::string> calls;
  std::shared_ptr<Recorder> data;
};

std::vector<std::string> calls(int local_rank, int global_rank, bool per_node) {
  Noting data;
  data.per_node = per_node;
  detail::begin_stage(data, Stage::kFit, local_rank, global_rank, [&] { data.calls.push_back("barrier"); });
  return data.calls;
}

TEST(DataModule, PreparesOnceForEachNodeOrForTheJob) {
  EXPECT_THAT(calls(0, 0, true), ElementsAre("prepare_data", "barrier", "setup fit"));
  EXPECT_THAT(calls(1, 1, true), ElementsAre("barrier", "setup fit"));
  EXPECT_THAT(calls(0, 2, true), ElementsAre("prepare_data", "barrier", "setup fit"));
  EXPECT_THAT(calls(0, 2, false), ElementsAre("barrier", "setup fit"));
  EXPECT_THAT(calls(0, 0, false), ElementsAre("prepare_data", "barrier", "setup fit"));
}

TEST(DataModule, GivesTheLoadersThatThereAre) {
  Noting data;
  data.setup(Stage::kFit);
  AnyDataModule& any = data;
  const auto train = any.any_loaders(DataPart::kTrain);
  ASSERT_EQ(train.size(), 1U);
  EXPECT_EQ(train[0]->num_batches({}), 2);
  for (const auto part : {DataPart::kValidation, DataPart::kTest, DataPart::kPredict})
    EXPECT_TRUE(any.any_loaders(part).empty());
}

TEST(DataModule, ShufflesOnlyTheTrainingDataOfDatasets) {
  const auto data = std::make_shared<Recorder>(30);
  const auto module =
      datasets_module<Indices>({.train = data, .val = data, .predict = data}, {.batch_size = 30, .seed = 3});
  EXPECT_THAT(batches_of(*module->train_dataloader()), ElementsAre(random_permutation(30, 3)));
  EXPECT_THAT(batches_of(*module->val_dataloader())[0], ::testing::BeginEndDistanceIs(30));
  EXPECT_TRUE(std::ranges::is_sorted(batches_of(*module->val_dataloader())[0]));
  EXPECT_TRUE(std::ranges::is_sorted(batches_of(*module->predict_dataloader())[0]));
  EXPECT_FALSE(module->test_dataloader());
  EXPECT_TRUE(module->state().empty());
}

}  // namespace
}  // namespace lockstep
