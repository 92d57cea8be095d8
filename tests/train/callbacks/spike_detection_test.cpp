// SpikeDetection in a fit: the loss that it sees, where the file lies, what a resumed run knows.
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/testing/fork_ranks.h>

#include "support/temporary_folder.h"
#include "train/callbacks/failing_fit.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::quiet_options;

// The loss is what the data say; that of one batch of one rank is 100.
struct GivenImpl : Module<Example> {
  GivenImpl() { weight = register_parameter("weight", torch::zeros({1})); }
  torch::Tensor training_step(const Example&, StepContext& step) override {
    const bool is_odd = step.global_rank() == rank && step.batch_idx() == batch;
    return weight.sum() * 0 + (is_odd ? 100.0 : 1.0 / static_cast<double>(step.batch_idx() + 1));
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 1.0}}; }
  int rank = 0;
  std::int64_t batch = 4;
  torch::Tensor weight;
};
TORCH_MODULE(Given);

TEST(SpikeDetection, EndsAFitAndNamesTheBatchesInTheRunsFolder) {
  const test::TemporaryFolder folder;
  const auto detection = std::make_shared<SpikeDetection>();
  EXPECT_THROW(Trainer(quiet_options(folder.path() / "run", {detection})).fit(Given(), testing::ones(9)),
               TrainingSpike);
  EXPECT_EQ(detection->detector().path(), folder.path() / "run" / "skip_batches.json");
  std::ostringstream text;
  text << std::ifstream(detection->detector().path()).rdbuf();
  EXPECT_EQ(text.str(), "[\n    3,\n    4\n]\n");
}

TEST(SpikeDetection, GoesOnFromACheckpoint) {
  const test::TemporaryFolder folder;
  Given model;
  model->batch = 1000;
  Trainer first(quiet_options(folder.path() / "run", {std::make_shared<SpikeDetection>()}));
  first.fit(model, testing::ones(5));
  const auto detection = std::make_shared<SpikeDetection>(SpikeDetectionOptions{.warmup = 0});
  auto options = quiet_options(folder.path() / "run", {detection});
  options.max_epochs = 2;
  model->batch = 0;
  // Of the first batch of the second epoch nothing but the checkpoint tells what a good loss is.
  EXPECT_THROW(Trainer(options).fit(model, testing::ones(5), std::nullopt, "last"), TrainingSpike);
}

LOCKSTEP_RANK_BODY(fit_with_spike)(Communicator comm, std::string folder)->std::string {
  auto options = quiet_options(fs::path(folder) / "run", {std::make_shared<SpikeDetection>()});
  options.strategy = Ddp{};
  options.devices = comm.size();
  Given model;
  model->rank = 1;
  try {
    Trainer(options).fit(model, testing::ones(9 * comm.size()));
  } catch (const TrainingSpike& spike) {
    return std::to_string(spike.batch_idx());
  }
  return "no spike";
}

TEST(SpikeDetection, ASpikeOfOneRankEndsTheFitOfAll) {
  const test::TemporaryFolder folder;
  for (const auto& rank : testing::fork_ranks(2, "fit_with_spike", folder.path().string()))
    EXPECT_EQ(rank.result, "4") << rank.error;
  EXPECT_TRUE(fs::exists(folder.path() / "run" / "skip_batches.json"));
}

}  // namespace
}  // namespace lockstep
