// Training and evaluation on streams: where epochs end, alone and on several ranks, and where a run goes on.
#include <gmock/gmock.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>

#include <optional>

#include "support/expect_error.h"
#include "train/slope.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SlopeTest;

// So many ones on each rank.
struct Ones : IterableDataset<float, Example> {
  explicit Ones(std::vector<std::int64_t> counts, bool tells_size = false, std::int64_t too_many = 0)
      : counts_(std::move(counts)), tells_size_(tells_size), too_many_(too_many) {}
  struct Stream : ItemStream<float> {
    explicit Stream(std::int64_t count) : left(count) {}
    bool next(float& item) override {
      item = 1;
      return left-- > 0;
    }
    std::int64_t left;
  };
  std::int64_t count_of(const ShardSpec& spec) const {
    return counts_.at(static_cast<std::size_t>(spec.rank));
  }
  std::unique_ptr<ItemStream<float>> stream(const ShardSpec& spec, std::int64_t) const override {
    return std::make_unique<Stream>(count_of(spec));
  }
  Example collate(std::vector<float> items) const override {
    return {.data = torch::tensor(items).unsqueeze(1), .target = {}};
  }
  std::int64_t size(const ShardSpec& spec) const override {
    return tells_size_ ? count_of(spec) + too_many_ : kUnknownLength;
  }

 private:
  std::vector<std::int64_t> counts_;
  bool tells_size_;
  std::int64_t too_many_;
};

Loader<Example> ones(std::vector<std::int64_t> counts, bool tells_size = false, std::int64_t too_many = 0) {
  return loader(std::make_shared<Ones>(std::move(counts), tells_size, too_many), {.batch_size = 1});
}

using Parts = std::vector<std::optional<Example>>;

// As Slope, of combined loaders.
struct CombinedSlopeImpl : Module<Parts> {
  CombinedSlopeImpl() { weight = register_parameter("weight", torch::zeros({1})); }
  torch::Tensor training_step(const Parts&, StepContext&) override {
    ++training_steps;
    return weight.sum();
  }
  void validation_step(const Parts&, StepContext&) override { validated_after.push_back(training_steps); }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 1.0}}; }

  torch::Tensor weight;
  int training_steps = 0;
  std::vector<int> validated_after;
};

struct SaveAfterBatch final : Callback {
  SaveAfterBatch(std::filesystem::path folder_, std::int64_t batch_)
      : folder(std::move(folder_)), batch(batch_) {}
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    if (step.current_epoch() == 0 && step.batch_idx() == batch) step.save_checkpoint(folder);
  }
  std::filesystem::path folder;
  std::int64_t batch;
};

class Streams : public SlopeTest {
 protected:
  Streams() { model_->losses = {1}; }
  TrainerOptions windows_of_two(std::int64_t max_epochs) {
    auto chosen = options(max_epochs);
    chosen.accumulate_grad_batches = 2;
    return chosen;
  }
};

TEST_F(Streams, MayHaveALimitThatTheyDoNotReach) {
  const auto known = loader(tensor_dataset(torch::ones({100, 1})), {.batch_size = 1});
  const std::vector<Loader<Example>> parts{ones({5}), known};
  for (const auto& options_of_mode : {CombinedOptions{.mode = CombinedMode::kMinSize},
                                      CombinedOptions{.mode = CombinedMode::kMinSize, .limits = {90, 90}}}) {
    const auto model = std::make_shared<CombinedSlopeImpl>();
    Trainer trainer(windows_of_two(2));
    trainer.fit(model, combined(options_of_mode, parts), combined({}, std::vector{batches(1)}));
    EXPECT_EQ(trainer.global_step(), 2 * 3);
    EXPECT_THAT(model->validated_after, ElementsAre(5, 10));
  }
}

TEST_F(Streams, WithoutABatchEndTheRun) {
  auto chosen = options();
  chosen.max_steps = 10;
  test::expect_error<DataError>([&] { Trainer(chosen).fit(model_, ones({0})); },
                                {"training data have no batch", "got none", "epoch 0", "drop_last"});
}

TEST_F(Streams, MustHaveWhatTheyTell) {
  test::expect_error<DataError>([&] { Trainer(options()).fit(model_, ones({3}, true, 2)); },
                                {"end before the length", "5 batches", "got 3", "size()"});
}

TEST_F(Streams, AreValidatedWhereARunGoesOnBehindTheLastBatch) {
  const auto saved = folder_ / "saved.ckpt";
  auto chosen = windows_of_two(2);
  chosen.callbacks = {std::make_shared<SaveAfterBatch>(saved, 4)};
  Trainer(chosen).fit(model_, ones({5}), batches(1));
  ASSERT_THAT(model_->validated_after, ElementsAre(5, 10));
  testing::Slope other;
  other->losses = {1};
  auto again = windows_of_two(2);
  again.run.run_dir = folder_ / "again";
  Trainer trainer(again);
  trainer.fit(other, ones({5}), batches(1), saved);
  EXPECT_THAT(other->validated_after, ElementsAre(0, 5));
  EXPECT_EQ(trainer.global_step(), 6);
  EXPECT_EQ(other->weight.item<double>(), model_->weight.item<double>());
}

TEST_F(Streams, ALimitThatHasEndedAnEpochMayBeRaised) {
  const auto saved = folder_ / "saved.ckpt";
  auto chosen = options();
  chosen.limit_train_batches = 3;
  chosen.callbacks = {std::make_shared<SaveAfterBatch>(saved, 2)};
  Trainer(chosen).fit(model_, ones({5}));
  chosen.limit_train_batches = 4;
  chosen.callbacks.clear();
  Trainer trainer(chosen);
  trainer.fit(model_, ones({5}), {}, saved);
  EXPECT_EQ(trainer.global_step(), 4);
}

// What a rank of two is to do: its name, and a folder.
struct Task {
  std::string name;
  std::filesystem::path folder;
  TrainerOptions options(std::int64_t max_epochs) const {
    TrainerOptions found{.max_epochs = max_epochs, .num_sanity_val_steps = 0, .enable_progress_bar = false};
    found.enable_model_summary = false;
    found.strategy = Ddp{};
    found.devices = 2;
    found.run.run_dir = folder / name;
    return found;
  }
};

template <class Model, class Batch>
std::string fit_two(const Task& task, const Model& model, const Loader<Batch>& data) {
  Trainer trainer(task.options(2));
  trainer.fit(model, data);
  return std::to_string(trainer.global_step()) + "/" + std::to_string(trainer.current_epoch());
}

std::string validate_two(const Task& task, std::vector<std::int64_t> counts) {
  struct CountingImpl : testing::SlopeImpl {
    void validation_step(const Example&, StepContext&) override { ++batches; }
    int batches = 0;
  };
  const auto model = std::make_shared<CountingImpl>();
  auto options = task.options(1);
  if (task.name == "fraction") options.limit_val_batches = 0.5;
  if (task.name == "number") options.limit_val_batches = 3;
  Trainer(options).validate(model, ones(std::move(counts), true));
  return std::to_string(model->batches);
}

LOCKSTEP_RANK_BODY(streams_of_two_ranks)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  const auto space = argument.find(' ');
  const Task task{.name = argument.substr(0, space), .folder = argument.substr(space + 1)};
  if (task.name == "sized") return fit_two(task, testing::Slope(), ones({3, 5}, true));
  if (task.name == "empty") return fit_two(task, testing::Slope(), ones({5, 0}));
  if (task.name == "limits") {
    const auto limited = combined({.limits = {100}}, std::vector{ones({3, 5})});
    return fit_two(task, std::make_shared<CombinedSlopeImpl>(), limited);
  }
  return validate_two(task, {2, 8});
}

class StreamsOfRanks : public Streams {
 protected:
  std::vector<testing::RankResult> run(const std::string& name) {
    return testing::fork_ranks(2, "streams_of_two_ranks", name + " " + folder_.path().string());
  }
  std::vector<std::string> results(const std::string& name) {
    std::vector<std::string> found;
    for (const auto& rank : run(name)) found.push_back(rank.result + rank.error);
    return found;
  }
};

TEST_F(StreamsOfRanks, OfKnownLengthsEndWithTheShortest) {
  EXPECT_THAT(results("sized"), ElementsAre("6/2", "6/2"));
}

TEST_F(StreamsOfRanks, WithLimitsEndWithTheShortest) {
  EXPECT_THAT(results("limits"), ElementsAre("6/2", "6/2"));
}

TEST_F(StreamsOfRanks, NeedABatchOnEachRank) {
  const auto error = HasSubstr("no batch; expected one at least on each of 2 ranks");
  EXPECT_THAT(results("empty"), ElementsAre(error, error));
}

TEST_F(StreamsOfRanks, AreEvaluatedEachToItsEnd) {
  EXPECT_THAT(results("all"), ElementsAre("2", "8"));
  EXPECT_THAT(results("number"), ElementsAre("2", "3"));
  EXPECT_THAT(results("fraction"), ElementsAre("2", "4"));
}

}  // namespace
}  // namespace lockstep
