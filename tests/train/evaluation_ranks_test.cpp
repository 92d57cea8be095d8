// Validate, test and predict on several ranks: all see rank 0's model.
#include <gmock/gmock.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>

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

}  // namespace
}  // namespace lockstep
