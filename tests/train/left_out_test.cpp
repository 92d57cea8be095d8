// Batches and epochs that are left out: skip_epoch(), steps without a loss, loaders without a batch; and the
// limits that end a run. All against Lightning's.
#include <gmock/gmock.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>

#include <cmath>
#include <limits>
#include <map>

#include "support/expect_error.h"
#include "train/golden_loops.h"
#include "train/slope.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

using testing::SlopeTest;
using Rows = std::vector<std::string>;

// Writes down its hooks as golden_loops.json has them.
struct RecordedImpl : testing::SlopeImpl {
  void note(const char* hook, const TrainContext& context, std::int64_t batch = -1) {
    rows.push_back(std::string(hook) + " " + std::to_string(context.current_epoch()) + " " +
                   std::to_string(context.global_step()) + (batch < 0 ? "" : " " + std::to_string(batch)));
  }
  void on_train_start(TrainContext& context) override { note("on_train_start", context); }
  void on_train_end(TrainContext& context) override { note("on_train_end", context); }
  void on_train_epoch_start(TrainContext& context) override { note("on_train_epoch_start", context); }
  void on_train_epoch_end(TrainContext& context) override { note("on_train_epoch_end", context); }
  void on_validation_start(TrainContext& context) override { note("on_validation_start", context); }
  void on_validation_end(TrainContext& context) override { note("on_validation_end", context); }
  void on_before_zero_grad(StepContext& step) override { note("on_before_zero_grad", step); }
  void on_before_backward(StepContext& step, const at::Tensor&) override { note("on_before_backward", step); }
  void on_after_backward(StepContext& step) override { note("on_after_backward", step); }
  void on_before_optimizer_step(StepContext& step) override { note("on_before_optimizer_step", step); }
  void on_train_batch_start(StepContext& step) override {
    note("on_train_batch_start", step, step.batch_idx());
    if (step.batch_idx() == skips_at) step.skip_epoch();
  }
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override {
    note("on_train_batch_end", step, step.batch_idx());
    EXPECT_EQ(std::isnan(output.loss), is_left_out(step.batch_idx()));
    stepped = step.batches_that_stepped();
  }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    note("training_step", step, step.batch_idx());
    if (std::ranges::find(no_loss_at, step.batch_idx()) != no_loss_at.end()) return {};
    return (weight * batch.data.mean()).sum();
  }
  void lr_scheduler_step(TrainContext& context, Scheduler& scheduler, std::optional<double> metric) override {
    if (notes_schedule) note("lr_scheduler_step", context);
    SlopeImpl::lr_scheduler_step(context, scheduler, metric);
    lr = context.optimizer().groups()[0].lr;
  }
  Optimizers configure_optimizers() override {
    return {
        .optimizer = SGD{.lr = 1.0, .momentum = 0.5},
        .lr_scheduler = LRScheduler{.scheduler = StepLR{.step_size = 1, .gamma = 0.5}, .interval = interval}};
  }
  bool is_left_out(std::int64_t batch) const {
    return std::ranges::find(no_loss_at, batch) != no_loss_at.end() ||
           std::ranges::find(empty_at, batch) != empty_at.end();
  }

  Rows rows;
  std::int64_t skips_at = -1;
  std::vector<std::int64_t> no_loss_at, empty_at;
  Interval interval = Interval::kEpoch;
  bool notes_schedule = true;
  double lr = 1;
  std::int64_t stepped = 0;
};

Rows rows_of(const nlohmann::json& hooks) {
  Rows rows;
  for (const auto& entry : hooks) {
    const std::string hook = entry[0];
    if (hook.ends_with("_transfer")) continue;
    std::string row = hook;
    for (std::size_t i = 1; i < entry.size(); ++i) row += " " + entry[i].dump();
    rows.push_back(row);
  }
  return rows;
}

// Some of whose batches are none.
struct Gaps final : AnyLoader {
  Gaps(std::int64_t size_, std::vector<std::int64_t> empty_at_)
      : size(size_), empty_at(std::move(empty_at_)) {}
  struct Stream final : BatchStream {
    bool next(AnyBatch& batch) override {
      if (at == loader->size) return false;
      const bool is_empty = std::ranges::find(loader->empty_at, at++) != loader->empty_at.end();
      batch = is_empty ? AnyBatch()
                       : AnyBatch(std::make_shared<const Example>(Example{torch::ones({1, 1}), {}}), 1);
      return true;
    }
    const Gaps* loader = nullptr;
    std::int64_t at = 0;
  };
  std::int64_t num_batches(const ShardSpec&) const override { return size; }
  std::int64_t num_samples() const override { return size; }
  std::int64_t batch_size() const override { return 1; }
  std::unique_ptr<BatchStream> stream(const ShardSpec&, std::int64_t, std::int64_t skip) const override {
    auto stream = std::make_unique<Stream>();
    stream->loader = this;
    stream->at = skip;
    return stream;
  }
  std::int64_t size;
  std::vector<std::int64_t> empty_at;
};

// A stream that never ends.
struct Endless : IterableDataset<float, Example> {
  struct Stream : ItemStream<float> {
    bool next(float& item) override {
      item = 1;
      return true;
    }
  };
  std::unique_ptr<ItemStream<float>> stream(const ShardSpec&, std::int64_t) const override {
    return std::make_unique<Stream>();
  }
  Example collate(std::vector<float> items) const override {
    return {.data = torch::tensor(items).unsqueeze(1), .target = {}};
  }
};

class LeftOut : public SlopeTest {
 protected:
  TrainerOptions windows_of(int batches) {
    auto chosen = options(2);
    chosen.accumulate_grad_batches = batches;
    return chosen;
  }
  void expect_end(const Trainer& trainer, const RecordedImpl& model, const nlohmann::json& golden) {
    EXPECT_EQ(trainer.global_step(), golden.at("global_step"));
    EXPECT_EQ(trainer.current_epoch(), golden.at("current_epoch"));
    EXPECT_EQ(model.weight.item<double>(), golden.at("weight"));
    EXPECT_EQ(model.lr, golden.at("lr"));
  }
};

TEST_F(LeftOut, SkippedEpochsEndAsLightnings) {
  for (const auto& golden : testing::golden_loops("skip_epoch")) {
    SCOPED_TRACE(golden.dump().substr(0, 100));
    const auto model = std::make_shared<RecordedImpl>();
    model->skips_at = golden.at("skip_at");
    model->interval = golden.at("interval") == "step" ? Interval::kStep : Interval::kEpoch;
    auto chosen = windows_of(golden.at("accumulate_grad_batches"));
    chosen.partial_window = PartialWindow::kLightning;
    Trainer trainer(chosen);
    trainer.fit(model, batches(4), batches(1));
    EXPECT_EQ(model->rows, rows_of(golden.at("hooks")));
    expect_end(trainer, *model, golden);
  }
}

struct Skip : Callback {
  void on_train_batch_start(StepContext& step) override {
    if (step.batch_idx() == 2) step.skip_epoch();
  }
};

TEST_F(LeftOut, CallbacksMaySkipToo) {
  auto chosen = options(2);
  chosen.callbacks = {std::make_shared<Skip>()};
  Trainer trainer(chosen);
  trainer.fit(model_, batches(4));
  EXPECT_EQ(trainer.global_step(), 4);
}

TEST_F(LeftOut, ASkipSaysWhichGradientsItDrops) {
  for (const auto& [skips_at, partial, warns] :
       {std::tuple(3, PartialWindow::kLightning, true), std::tuple(2, PartialWindow::kLightning, false),
        std::tuple(3, PartialWindow::kAccumulated, false), std::tuple(3, PartialWindow::kCarry, false)}) {
    const auto model = std::make_shared<RecordedImpl>();
    model->skips_at = skips_at;
    auto chosen = windows_of(2);
    chosen.partial_window = partial;
    ::testing::internal::CaptureStderr();
    Trainer(chosen).fit(model, batches(4));
    const auto said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("the gradients of 1 micro-batches") != said.npos, warns) << said;
  }
}

// argument: strategy, folder. Returns the weight after an epoch of windows of three, skipped after two
// batches.
LOCKSTEP_RANK_BODY(skip_in_window)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  static const std::map<std::string, StrategyOptions> table{
      {"single_device", SingleDevice{}},
      {"ddp", Ddp{}},
      {"ddp, every", Ddp{.reduce_every_micro_batch = true}},
      {"fsdp", Fsdp{}},
      {"NO_SHARD", Fsdp{.sharding_strategy = "NO_SHARD"}}};
  const auto colon = argument.find(':');
  TrainerOptions chosen{.max_epochs = 1,
                        .strategy = table.at(argument.substr(0, colon)),
                        .devices = comm.size(),
                        .accumulate_grad_batches = 3,
                        .logger = false,
                        .enable_progress_bar = false,
                        .callbacks = {std::make_shared<Skip>()}};
  chosen.enable_model_summary = false;
  chosen.run.run_dir = argument.substr(colon + 1);
  testing::Slope model;
  Trainer trainer(chosen);
  trainer.fit(model,
              loader(tensor_dataset(torch::arange(1, 9).to(torch::kFloat).unsqueeze(1)), {.batch_size = 1}));
  restore_sharded(*model);
  return std::to_string(trainer.global_step()) + " " + std::to_string(model->weight.item<float>());
}

TEST(SkippedWindows, TakeAStepByTheMeanOfWhatTheyHave) {
  for (const auto& [strategy, ranks] : {std::pair{"single_device", 1},
                                        {"ddp", 1},
                                        {"fsdp", 1},
                                        {"ddp", 2},
                                        {"ddp, every", 2},
                                        {"fsdp", 2},
                                        {"NO_SHARD", 2}}) {
    const test::TemporaryFolder folder;
    const auto* const expected = ranks == 1 ? "1 -1.500000" : "1 -2.500000";
    for (const auto& rank : testing::fork_ranks(ranks, "skip_in_window",
                                                std::string(strategy) + ":" + (folder / "run").string()))
      EXPECT_EQ(rank.error + rank.result, expected) << strategy << " on " << ranks;
  }
}

struct SaveInEpoch final : Callback {
  explicit SaveInEpoch(std::filesystem::path folder_) : folder(std::move(folder_)) {}
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    if (step.batch_idx() == 3) step.save_checkpoint(folder);
  }
  std::filesystem::path folder;
};

// As in Lightning: the epoch ends at once, and its validation comes.
TEST_F(LeftOut, AnEpochThatIsShorterThanWhatIsDoneOfItIsValidated) {
  auto first = options(2);
  first.max_steps = 4;
  first.callbacks = {std::make_shared<SaveInEpoch>(folder_ / "x.ckpt")};
  Trainer(first).fit(model_, batches(6), batches(1));
  EXPECT_EQ(model_->validated_after, std::vector<int>());
  for (const auto& from : {std::string("last"), (folder_ / "x.ckpt").string()}) {
    for (const int limit : {2, 3, 4, 6}) {
      SCOPED_TRACE(from + ", " + std::to_string(limit));
      auto second = options(2);
      second.limit_train_batches = limit;
      second.enable_checkpointing = false;
      testing::Slope model;
      Trainer trainer(second);
      trainer.fit(model, batches(6), batches(1), from);
      const int rest = std::max(0, limit - 4);
      EXPECT_EQ(model->validated_after, (std::vector{rest, rest + limit}));
      EXPECT_EQ(trainer.current_epoch(), 2);
    }
  }
}

// The scale may have been right: the loss was not.
TEST_F(LeftOut, StepsOnGradientsThatAreNotFiniteAreNamedForWhatTheyAre) {
  const auto data = torch::tensor({1.0F, std::nanf(""), 1.0F, 1.0F}).unsqueeze(1);
  auto chosen = options();
  chosen.precision = Fp16Mixed{};
  ::testing::internal::CaptureStderr();
  Trainer(chosen).fit(model_, loader(tensor_dataset(data), {.batch_size = 1}));
  const auto said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(
      said.find("1 of 4 optimizer steps were left out: gradients were infinite or NaN under the loss scale, "
                "which is 32768"),
      said.npos)
      << said;
}

TEST_F(LeftOut, ASkipIsRefusedInOtherHooks) {
  struct Late : Callback {
    void on_train_batch_end(StepContext& step, const TrainOutput&) override { step.skip_epoch(); }
  };
  auto chosen = options();
  chosen.callbacks = {std::make_shared<Late>()};
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, batches(1)); },
                                  {"skip_epoch", "on_train_batch_start"});
}

TEST_F(LeftOut, StepsWithoutALossCountAsLightnings) {
  for (const auto& golden : testing::golden_loops("no_loss")) {
    SCOPED_TRACE(golden.dump().substr(0, 100));
    const auto model = std::make_shared<RecordedImpl>();
    model->no_loss_at = golden.at("none_at").get<std::vector<std::int64_t>>();
    auto chosen = windows_of(golden.at("accumulate_grad_batches"));
    chosen.partial_window = PartialWindow::kLightning;
    Trainer trainer(chosen);
    trainer.fit(model, batches(4), batches(1));
    EXPECT_EQ(model->rows, rows_of(golden.at("hooks")));
    expect_end(trainer, *model, golden);
  }
}

TEST_F(LeftOut, EmptyBatchesOfWindowsOfOneCountAsLightnings) {
  for (const auto& golden : testing::golden_loops("empty_batch")) {
    if (golden.at("accumulate_grad_batches") != 1) continue;
    SCOPED_TRACE(golden.dump().substr(0, 100));
    const auto model = std::make_shared<RecordedImpl>();
    model->empty_at = golden.at("empty_at").get<std::vector<std::int64_t>>();
    Trainer trainer(options(2));
    trainer.fit(model, Loader<Example>(std::make_shared<Gaps>(4, model->empty_at)), batches(1));
    auto expected = rows_of(golden.at("hooks"));
    std::erase_if(expected, [](const auto& row) { return row.starts_with("on_before_zero_grad"); });
    std::erase_if(model->rows, [](const auto& row) { return row.starts_with("on_before_zero_grad"); });
    EXPECT_EQ(model->rows, expected);
    expect_end(trainer, *model, golden);
  }
}

// Lightning forgets the window's gradients, or steps with those of the window before.
TEST_F(LeftOut, AnEmptyBatchAddsNothingToItsWindow) {
  for (const std::int64_t empty : {0, 1, 3}) {
    Trainer trainer(windows_of(2));
    const auto model = std::make_shared<testing::SlopeImpl>();
    trainer.fit(model, Loader<Example>(std::make_shared<Gaps>(4, std::vector<std::int64_t>{empty})));
    EXPECT_EQ(trainer.global_step(), 4) << empty;
    EXPECT_EQ(model->weight.item<float>(), -2 * 1.5F) << empty;
  }
  Trainer trainer(windows_of(2));
  const auto model = std::make_shared<testing::SlopeImpl>();
  trainer.fit(model, Loader<Example>(std::make_shared<Gaps>(4, std::vector<std::int64_t>{2, 3})));
  EXPECT_EQ(trainer.global_step(), 2);  // a window without a batch is none
}

struct StopAt final : Callback {
  explicit StopAt(bool at_start_) : at_start(at_start_) {}
  void on_train_start(TrainContext& context) override {
    if (at_start) context.stop();
  }
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    if (!at_start) step.stop();
  }
  void on_validation_start(TrainContext& context) override {
    validations.push_back({context.current_epoch(), context.global_step()});
  }
  bool at_start;
  std::vector<std::vector<std::int64_t>> validations;
};

TEST_F(LeftOut, AStopIsHonouredWhereLightningDoes) {
  for (const auto& golden : testing::golden_loops("should_stop")) {
    SCOPED_TRACE(golden.dump());
    auto chosen = options(20);
    const auto stop = std::make_shared<StopAt>(golden.at("stop") == "start");
    chosen.callbacks = {stop};
    if (!golden.at("min_epochs").is_null()) chosen.min_epochs = golden.at("min_epochs").get<std::int64_t>();
    if (!golden.at("min_steps").is_null()) chosen.min_steps = golden.at("min_steps");
    testing::Slope model;
    Trainer trainer(chosen);
    trainer.fit(model, batches(golden.at("batches")), batches(1));
    EXPECT_EQ(trainer.global_step(), golden.at("steps"));
    EXPECT_EQ(trainer.current_epoch(), golden.at("epochs"));
    EXPECT_EQ(nlohmann::json(stop->validations), golden.at("validations"));
  }
}

void apply(TrainerOptions& chosen, const nlohmann::json& golden) {
  for (const auto& [name, value] : golden.items()) {
    if (name == "max_epochs") chosen.max_epochs = value.get<std::int64_t>();
    if (name == "max_steps") chosen.max_steps = value;
    if (name == "accumulate_grad_batches") chosen.accumulate_grad_batches = value.get<int>();
    const auto limit =
        value.is_number_integer() ? BatchLimit(value.get<std::int64_t>()) : BatchLimit(value.get<double>());
    if (name == "limit_train_batches") chosen.limit_train_batches = limit;
    if (name == "overfit_batches") chosen.overfit_batches = limit;
  }
}

TEST_F(LeftOut, LimitsEndARunWhereLightningDoes) {
  for (const auto& golden : testing::golden_loops("limits")) {
    SCOPED_TRACE(golden.dump());
    auto chosen = options();
    chosen.max_epochs.reset();
    apply(chosen, golden.at("trainer"));
    testing::Slope model;
    Trainer trainer(chosen);
    trainer.fit(model, batches(3));
    EXPECT_EQ(trainer.global_step(), golden.at("steps"));
    EXPECT_EQ(trainer.current_epoch(), golden.at("epochs"));
  }
}

struct AskForSteps final : Callback {
  void setup(TrainContext& context) override { estimated = context.estimated_stepping_batches(); }
  void on_train_batch_end(StepContext& step, const TrainOutput&) override { step.stop(); }
  std::optional<std::int64_t> estimated;
};

TEST_F(LeftOut, StepsAreEstimatedAsLightnings) {
  for (const auto& golden : testing::golden_loops("estimated_stepping_batches")) {
    SCOPED_TRACE(golden.dump());
    auto chosen = options();
    chosen.max_epochs.reset();
    apply(chosen, golden.at("trainer"));
    const auto ask = std::make_shared<AskForSteps>();
    chosen.callbacks = {ask};
    Trainer(chosen).fit(model_, batches(64));
    const auto& expected = golden.at("estimated");
    EXPECT_EQ(ask->estimated,
              expected.is_string() ? std::nullopt : std::optional(expected.get<std::int64_t>()));
  }
  auto chosen = options(10);
  chosen.accumulate_grad_batches = {{0, 1}, {2, 4}, {5, 3}};
  const auto ask = std::make_shared<AskForSteps>();
  chosen.callbacks = {ask};
  Trainer(chosen).fit(model_, batches(8));
  EXPECT_EQ(ask->estimated, 2 * 8 + 3 * 2 + 5 * 3);
  test::expect_error<ConfigError>([&] { Trainer(chosen).validate(model_, batches(1)); },
                                  {"estimated_stepping_batches", "fit", "validate"});
}

TEST_F(LeftOut, StepsOfStreamsAreEstimatedByTheirLimit) {
  const auto estimated = [&](std::int64_t max_steps) {
    auto chosen = options(max_steps < 0 ? 3 : -1);
    chosen.max_steps = max_steps;
    const auto ask = std::make_shared<AskForSteps>();
    chosen.callbacks = {ask};
    Trainer(chosen).fit(model_, loader(std::make_shared<Endless>()));
    return ask->estimated;
  };
  EXPECT_EQ(estimated(1000), 1000);
  EXPECT_EQ(estimated(-1), std::nullopt);
}

TEST_F(LeftOut, StepsOfEndlessEpochsAreEstimatedByTheirLimit) {
  for (const auto window : {PartialWindow::kCarry, PartialWindow::kAccumulated}) {
    auto chosen = options(std::numeric_limits<std::int64_t>::max());
    chosen.max_steps = 1000;
    chosen.partial_window = window;
    const auto ask = std::make_shared<AskForSteps>();
    chosen.callbacks = {ask};
    Trainer(chosen).fit(model_, batches(8));
    EXPECT_EQ(ask->estimated, 1000);
  }
}

// Lightning's numbers for 64 batches on devices x nodes.
TEST_F(LeftOut, StepsAreEstimatedOfARanksBatches) {
  const auto of_ranks = [](int ranks) { return batches(64).num_batches({.num_replicas = ranks}); };
  EXPECT_EQ(of_ranks(7), 10);
  EXPECT_EQ(of_ranks(14), 5);
  EXPECT_EQ(of_ranks(21), 4);
  EXPECT_EQ(of_ranks(28), 3);
}

LOCKSTEP_RANK_BODY(estimated_steps_of_ranks)(Communicator comm, std::string folder)->std::string {
  testing::become_trainer_rank(comm);
  TrainerOptions options{.max_epochs = 1, .num_sanity_val_steps = 0, .enable_progress_bar = false};
  options.enable_model_summary = false;
  options.strategy = Ddp{};
  options.devices = comm.size();
  options.run.run_dir = folder;
  const auto ask = std::make_shared<AskForSteps>();
  options.callbacks = {ask};
  Trainer(options).fit(testing::Slope(), loader(tensor_dataset(torch::ones({64, 1})), {.batch_size = 1}));
  return std::to_string(ask->estimated.value_or(-1));
}

TEST_F(LeftOut, StepsOfRanksAreEstimatedAsLightnings) {
  for (const auto& [ranks, steps] : {std::pair{2, "32"}, std::pair{3, "22"}}) {
    for (const auto& rank :
         testing::fork_ranks(ranks, "estimated_steps_of_ranks", (folder_ / "run").string()))
      EXPECT_EQ(rank.result + rank.error, steps);
  }
}

// The hooks of stages that have nothing to do.
struct NotingStages final : Callback {
  void setup(TrainContext&) override { rows.emplace_back("setup"); }
  void on_fit_start(TrainContext&) override { rows.emplace_back("on_fit_start"); }
  void on_fit_end(TrainContext&) override { rows.emplace_back("on_fit_end"); }
  void teardown(TrainContext&) override { rows.emplace_back("teardown"); }
  void on_train_start(TrainContext&) override { rows.emplace_back("on_train_start"); }
  void on_train_end(TrainContext&) override { rows.emplace_back("on_train_end"); }
  void on_train_epoch_start(TrainContext&) override { rows.emplace_back("on_train_epoch_start"); }
  void on_validation_start(TrainContext&) override { rows.emplace_back("on_validation_start"); }
  void on_validation_epoch_end(TrainContext&) override { rows.emplace_back("on_validation_epoch_end"); }
  void on_validation_end(TrainContext&) override { rows.emplace_back("on_validation_end"); }
  void on_test_start(TrainContext&) override { rows.emplace_back("on_test_start"); }
  void on_predict_start(TrainContext&) override { rows.emplace_back("on_predict_start"); }
  Rows rows;
};

TEST_F(LeftOut, StagesWithoutBatchesCallNoHooksOfTheirs) {
  const auto golden = testing::golden_loops("zero_batches");
  for (const auto& [stage, hooks] : golden.items()) {
    SCOPED_TRACE(stage);
    auto chosen = options();
    chosen.num_sanity_val_steps = 2;
    const auto noting = std::make_shared<NotingStages>();
    chosen.callbacks = {noting};
    auto& limit = stage == "fit0"      ? chosen.limit_train_batches
                  : stage == "test"    ? chosen.limit_test_batches
                  : stage == "predict" ? chosen.limit_predict_batches
                                       : chosen.limit_val_batches;
    limit = 0;
    Trainer trainer(chosen);
    if (stage.starts_with("fit")) trainer.fit(model_, batches(2), batches(2));
    if (stage == "validate") trainer.validate(model_, batches(2));
    if (stage == "test") trainer.test(model_, batches(2));
    if (stage == "predict") trainer.predict(model_, batches(2));
    auto expected = hooks.get<Rows>();
    std::erase_if(expected, [](const auto& hook) { return hook.find("_model_") != std::string::npos; });
    EXPECT_EQ(noting->rows, expected);
  }
}

TEST_F(LeftOut, ModulesInEvaluationModeStaySo) {
  struct HalfFrozen : testing::SlopeImpl {
    HalfFrozen() { register_module("frozen", frozen)->eval(); }
    void on_train_batch_start(StepContext&) override {
      if (is_training()) frozen_in_training = !frozen->is_training();
    }
    torch::nn::Dropout frozen;
    bool frozen_in_training = false;
  };
  const auto model = std::make_shared<HalfFrozen>();
  ::testing::internal::CaptureStderr();
  Trainer(options()).fit(model, batches(1), batches(1));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("1 of 2 modules are in evaluation mode"));
  EXPECT_TRUE(model->frozen_in_training);
  EXPECT_FALSE(model->frozen->is_training());
}

}  // namespace
}  // namespace lockstep
