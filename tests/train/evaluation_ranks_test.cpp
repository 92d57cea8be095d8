// Validate, test and predict on several ranks: all see rank 0's model.
#include <gmock/gmock.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>

#include <sstream>
#include <string>
#include <tuple>

#include "support/temporary_folder.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

// Its steps note the weight and the buffer that they see.
struct SeenImpl final : Module<Example> {
  explicit SeenImpl(int rank) {
    weight = register_parameter("weight", torch::full({1}, static_cast<double>(rank) + 1));
    buffer = register_buffer("buffer", torch::full({1}, static_cast<double>(rank)));
  }
  void look() { seen += std::to_string(weight.item<int>()) + std::to_string(buffer.item<int>()) + " "; }
  void validation_step(const Example&, StepContext&) override { look(); }
  void test_step(const Example&, StepContext&) override { look(); }
  torch::Tensor predict_step(const Example& batch, StepContext&) override {
    look();
    return batch.data;
  }
  torch::Tensor weight, buffer;
  std::string seen;
};
TORCH_MODULE(Seen);

LOCKSTEP_RANK_BODY(look_at_the_model)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  TrainerOptions options{.strategy = Ddp{}, .devices = comm.size()};
  options.enable_progress_bar = false;
  const auto split = argument.find(' ');
  options.run.run_dir = argument.substr(split + 1);
  Seen model(comm.rank());
  const auto data = loader(tensor_dataset(torch::ones({2, 1})), {.batch_size = 1});
  const auto verb = argument.substr(0, split);
  Trainer trainer(options);
  if (verb == "validate") trainer.validate(model, data);
  if (verb == "test") trainer.test(model, data);
  if (verb == "predict") trainer.predict(model, data);
  model->look();
  return model->seen;
}

class EvaluationOnRanks : public ::testing::TestWithParam<std::string> {};

TEST_P(EvaluationOnRanks, IsOfRankZerosModel) {
  const test::TemporaryFolder folder;
  const auto ranks =
      testing::fork_ranks(2, "look_at_the_model", GetParam() + " " + (folder / "run").string());
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank.error, "");
    EXPECT_EQ(rank.result, "10 10 ");
  }
}

INSTANTIATE_TEST_SUITE_P(All, EvaluationOnRanks, ::testing::Values("validate", "test", "predict"),
                         [](const auto& verb) { return verb.param; });

// Counts the batches that it sees in evaluation, and logs their mean over ranks.
struct CountsImpl final : Module<Example> {
  CountsImpl() { linear = register_module("linear", torch::nn::Linear(1, 1)); }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    return linear->forward(batch.data).sum();
  }
  void see(const Example& batch, StepContext& step) {
    ++seen;
    linear->forward(batch.data);
    step.log("value", batch.data.mean(), {.on_epoch = true, .sync_dist = true});
  }
  void validation_step(const Example& batch, StepContext& step) override { see(batch, step); }
  void test_step(const Example& batch, StepContext& step) override { see(batch, step); }
  torch::Tensor predict_step(const Example& batch, StepContext&) override {
    ++seen;
    return linear->forward(batch.data);
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 0.1}}; }
  torch::nn::Linear linear{nullptr};
  int seen = 0;
};
TORCH_MODULE(Counts);

// "VERB STRATEGY RANK_WITH_DATA FOLDER": that rank has three batches to evaluate on, the other one none.
LOCKSTEP_RANK_BODY(evaluate_own_data)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  std::istringstream words(argument);
  std::string verb, strategy, folder;
  int rank_with_data = 0;
  words >> verb >> strategy >> rank_with_data >> folder;
  TrainerOptions options{.devices = comm.size()};
  options.max_epochs = 2;
  if (strategy == "ddp") options.strategy = Ddp{};
  if (strategy == "fsdp") options.strategy = Fsdp{};
  options.enable_progress_bar = options.enable_checkpointing = options.use_distributed_sampler = false;
  options.run.run_dir = folder;
  const auto own =
      loader(tensor_dataset(torch::full({comm.rank() == rank_with_data ? 3 : 0, 1}, 7.0)), {.batch_size = 1});
  Counts model;
  Trainer trainer(options);
  if (verb == "fit") trainer.fit(model, loader(tensor_dataset(torch::ones({2, 1})), {.batch_size = 1}), own);
  if (verb == "validate") trainer.validate(model, own);
  if (verb == "test") trainer.test(model, own);
  if (verb == "predict") trainer.predict(model, own);
  return std::to_string(model->seen);
}

// Rank 0 has three batches to train on, rank 1 two.
LOCKSTEP_RANK_BODY(train_on_own_data)(Communicator comm, std::string folder)->std::string {
  testing::become_trainer_rank(comm);
  TrainerOptions options{.strategy = Ddp{}, .devices = comm.size()};
  options.max_epochs = 2;
  options.enable_progress_bar = options.enable_checkpointing = options.use_distributed_sampler = false;
  options.run.run_dir = folder;
  Counts model;
  Trainer trainer(options);
  trainer.fit(model, loader(tensor_dataset(torch::ones({3 - comm.rank(), 1})), {.batch_size = 1}));
  return std::to_string(trainer.global_step());
}

TEST(OwnTrainingData, EndsWithTheShortestRanks) {
  const test::TemporaryFolder folder;
  for (const auto& rank : testing::fork_ranks(2, "train_on_own_data", (folder / "run").string())) {
    EXPECT_EQ(rank.error, "");
    EXPECT_EQ(rank.result, "4");
  }
}

LOCKSTEP_RANK_BODY(validate_with_more_loaders)(Communicator comm, std::string folder)->std::string {
  testing::become_trainer_rank(comm);
  TrainerOptions options{.strategy = Ddp{}, .devices = comm.size()};
  options.enable_progress_bar = false;
  options.run.run_dir = folder;
  const auto data = loader(tensor_dataset(torch::ones({2, 1})), {.batch_size = 1});
  Loaders<Example> loaders{data};
  if (comm.rank() == 1) loaders = {data, data};
  Trainer(options).validate(Counts(), loaders);
  return "";
}

TEST(EvaluationOnRanksOfOtherLoaders, IsRefusedAtOnce) {
  const test::TemporaryFolder folder;
  for (const auto& rank : testing::fork_ranks(2, "validate_with_more_loaders", (folder / "run").string()))
    EXPECT_THAT(rank.error, ::testing::HasSubstr(
                                "other numbers of loaders for validate; expected 1, as rank 0 has; got 2"));
}

class OwnEvaluationData : public ::testing::TestWithParam<std::tuple<const char*, const char*, int>> {};

TEST_P(OwnEvaluationData, ARankWithoutBatchesTakesPart) {
  const test::TemporaryFolder folder;
  const auto [verb, strategy, rank_with_data] = GetParam();
  const auto ranks =
      testing::fork_ranks(2, "evaluate_own_data",
                          std::string(verb) + ' ' + strategy + ' ' + std::to_string(rank_with_data) + ' ' +
                              (folder / "run").string());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks[rank].error, "");
    const int passes = std::string(verb) == "fit" ? 2 : 1;
    const int sanity_checked = passes == 2 ? 2 : 0;
    EXPECT_EQ(ranks[rank].result, std::to_string(rank == rank_with_data ? 3 * passes + sanity_checked : 0));
  }
}

INSTANTIATE_TEST_SUITE_P(All, OwnEvaluationData,
                         ::testing::Combine(::testing::Values("fit", "validate", "test", "predict"),
                                            ::testing::Values("ddp", "fsdp"), ::testing::Values(0, 1)));

}  // namespace
}  // namespace lockstep
