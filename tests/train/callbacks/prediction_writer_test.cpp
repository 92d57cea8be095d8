// Prediction writers: what they are given, and what lies on the disk.
#include <gmock/gmock.h>

#include <lockstep/checkpoint/weights.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/testing/fork_ranks.h>

#include "support/expect_error.h"
#include "train/slope.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::SlopeTest;

at::Tensor read(const fs::path& file, const char* name) {
  return tensor_of(safetensors::File(file).at(name));
}

std::vector<std::int64_t> indices_in(const fs::path& file) {
  const auto tensor = read(file, "batch_indices");
  return {tensor.const_data_ptr<std::int64_t>(), tensor.const_data_ptr<std::int64_t>() + tensor.numel()};
}

// The samples 0, 1, 2, ...
Loader<Example> numbers(std::int64_t count, std::int64_t batch_size) {
  return loader(tensor_dataset(torch::arange(static_cast<double>(count)).unsqueeze(1)),
                {.batch_size = batch_size});
}

struct RecordingWriter final : BasePredictionWriter {
  using BasePredictionWriter::BasePredictionWriter;
  void write_on_batch_end(StepContext& step, const at::Tensor& prediction,
                          std::span<const std::int64_t> batch_indices) override {
    EXPECT_EQ(prediction.size(0), step.batch_size());
    of_batches.emplace_back(batch_indices.begin(), batch_indices.end());
  }
  void write_on_epoch_end(TrainContext&, std::span<const at::Tensor> predictions,
                          std::span<const std::vector<std::int64_t>> batch_indices) override {
    predictions_at_end = predictions.size();
    of_epoch.assign(batch_indices.begin(), batch_indices.end());
  }
  std::vector<std::vector<std::int64_t>> of_batches, of_epoch;
  std::size_t predictions_at_end = 0;
};

class PredictionWriterTest : public SlopeTest {
 protected:
  void predict(std::shared_ptr<Callback> writer, const Loader<Example>& data) {
    auto chosen = options();
    chosen.callbacks = {std::move(writer)};
    EXPECT_TRUE(Trainer(chosen).predict(model_, data, "", /*return_predictions=*/false).empty());
  }
};

TEST_F(PredictionWriterTest, CallsWhatTheIntervalSays) {
  const auto both = std::make_shared<RecordingWriter>(WriteInterval::kBatchAndEpoch);
  predict(both, numbers(5, 2));
  EXPECT_THAT(both->of_batches, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
  EXPECT_EQ(both->of_epoch, both->of_batches);
  EXPECT_EQ(both->predictions_at_end, 3U);
  const auto batch = std::make_shared<RecordingWriter>();
  predict(batch, numbers(2, 1));
  EXPECT_EQ(batch->of_batches.size(), 2U);
  EXPECT_EQ(batch->predictions_at_end, 0U);
  const auto epoch = std::make_shared<RecordingWriter>(WriteInterval::kEpoch);
  predict(epoch, numbers(2, 1));
  EXPECT_TRUE(epoch->of_batches.empty());
  EXPECT_EQ(epoch->of_epoch.size(), 2U);
}

TEST_F(PredictionWriterTest, NamesWhatAWriterLacks) {
  struct Bare final : BasePredictionWriter {
    using BasePredictionWriter::BasePredictionWriter;
  };
  test::expect_error<ConfigError>([&] { predict(std::make_shared<Bare>(), numbers(1, 1)); },
                                  {"write_on_batch_end"});
  test::expect_error<ConfigError>(
      [&] { predict(std::make_shared<Bare>(WriteInterval::kEpoch), numbers(1, 1)); }, {"write_on_epoch_end"});
}

TEST_F(PredictionWriterTest, WritesOneFileAtTheEnd) {
  predict(std::make_shared<PredictionWriter>(), numbers(5, 2));
  const auto file = run_dir() / "predictions" / "predictions_0.safetensors";
  EXPECT_TRUE(torch::equal(read(file, "predictions"), 2 * torch::arange(5.0F).unsqueeze(1)));
  EXPECT_THAT(indices_in(file), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(PredictionWriterTest, WritesAFileForEachBatch) {
  predict(std::make_shared<PredictionWriter>(
              PredictionWriterOptions{.dirpath = folder_ / "out", .write_interval = "batch"}),
          numbers(3, 2));
  EXPECT_THAT(indices_in(folder_ / "out" / "predictions_0_0.safetensors"), ElementsAre(0, 1));
  EXPECT_THAT(indices_in(folder_ / "out" / "predictions_0_1.safetensors"), ElementsAre(2));
  EXPECT_FALSE(fs::exists(folder_ / "out" / "predictions_0.safetensors"));
}

TEST_F(PredictionWriterTest, KeepsLoadersApart) {
  auto chosen = options();
  chosen.callbacks = {std::make_shared<PredictionWriter>(
      PredictionWriterOptions{.write_interval = WriteInterval::kBatchAndEpoch})};
  Trainer(chosen).predict(model_, {numbers(3, 2), numbers(0, 1), numbers(2, 2)});
  const auto folder = run_dir() / "predictions";
  EXPECT_THAT(indices_in(folder / "predictions_0.safetensors"), ElementsAre(0, 1, 2));
  EXPECT_THAT(indices_in(folder / "predictions_0_1.safetensors"), ElementsAre(2)) << "of the second batch";
  EXPECT_TRUE(indices_in(folder / "predictions_0_loader_1.safetensors").empty());
  EXPECT_THAT(indices_in(folder / "predictions_0_loader_2.safetensors"), ElementsAre(0, 1));
}

TEST_F(PredictionWriterTest, KnowsTheSamplesOfAShuffledLoader) {
  const auto recorder = std::make_shared<RecordingWriter>();
  predict(recorder,
          loader(tensor_dataset(torch::ones({8, 1})), {.batch_size = 8, .shuffle = true, .seed = 3}));
  auto order = recorder->of_batches.at(0);
  EXPECT_THAT(order, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(order, random_permutation(8, 3));
}

TEST_F(PredictionWriterTest, RefusesBatchesThatDoNotFitTogether) {
  struct Uneven : testing::SlopeImpl {
    torch::Tensor predict_step(const Example&, StepContext& step) override {
      return torch::ones({1, step.batch_idx() + 1});
    }
  };
  auto chosen = options();
  chosen.callbacks = {std::make_shared<PredictionWriter>()};
  test::expect_error<DataError>([&] { Trainer(chosen).predict(std::make_shared<Uneven>(), numbers(2, 1)); },
                                {"batch 1", "[1, 2]"});
}

LOCKSTEP_RANK_BODY(predict_on_ranks)(Communicator comm, std::string folder)->std::string {
  TrainerOptions options{.strategy = Ddp{}, .devices = comm.size()};
  options.enable_progress_bar = false;
  options.run.run_dir = fs::path(folder) / "run";
  options.callbacks = {std::make_shared<PredictionWriter>(PredictionWriterOptions{.dirpath = folder})};
  Trainer(options).predict(testing::Slope(), numbers(5, 2));
  return "";
}

TEST_F(PredictionWriterTest, EachRankWritesItsPart) {
  for (const auto& rank : testing::fork_ranks(2, "predict_on_ranks", folder_.path().string()))
    EXPECT_EQ(rank.error, "");
  EXPECT_THAT(indices_in(folder_ / "predictions_0.safetensors"), ElementsAre(0, 2, 4));
  EXPECT_THAT(indices_in(folder_ / "predictions_1.safetensors"), ElementsAre(1, 3));
  EXPECT_TRUE(torch::equal(read(folder_ / "predictions_1.safetensors", "predictions"),
                           torch::tensor({2.0F, 6.0F}).unsqueeze(1)));
}

}  // namespace
}  // namespace lockstep
