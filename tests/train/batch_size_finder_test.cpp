// The largest batch that fits: against Lightning's own searches, and what a search may not change.
#include <fstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/paths.h"
#include "train/hungry.h"
#include "train/tuner/trial_votes.h"

namespace lockstep {
namespace {

using nlohmann::json;
using test::expect_error;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Le;

const json& golden_tuner() {
  static const auto file = json::parse(std::ifstream(test::in_repository("tests/train/golden_tuner.json")));
  return file;
}

ScaleBatchSizeOptions options_of(const json& run) {
  const auto& args = run["args"];
  return {.mode = run["mode"] == "power" ? BatchSizeMode::kPower : BatchSizeMode::kBinsearch,
          .steps_per_trial = args["steps_per_trial"],
          .init_val = args["init_val"],
          .max_trials = args["max_trials"],
          .margin = args.value("margin", 0.05),
          .max_val = args.value("max_val", 8192)};
}

void expect_result(const json& run, std::int64_t found) {
  const auto& expected = run["expected_result"];
  if (expected.is_number()) {
    EXPECT_EQ(found, expected.get<std::int64_t>());
    return;
  }
  EXPECT_GE(found, expected["at_least"].get<std::int64_t>());
  EXPECT_LE(found, expected["at_most"].get<std::int64_t>());
}

class BatchSizeFinderTest : public testing::HungryTest {
 protected:
  using Hungry = testing::Hungry;
  // The optional's value stays empty where the search fails.
  std::optional<std::int64_t> find(Hungry& model, const ScaleBatchSizeOptions& how,
                                   const std::shared_ptr<DataModule<Example>>& rows_of) {
    Trainer trainer(options());
    return Tuner(trainer).scale_batch_size(model, rows_of, how);
  }
};

TEST(OutOfMemory, IsToldFromOtherErrors) {
  for (const auto& [text, is_oom] : golden_tuner()["is_oom_error"].items())
    EXPECT_TRUE(!is_oom || detail::is_out_of_memory(std::runtime_error(text))) << text;
  EXPECT_TRUE(detail::is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(detail::is_out_of_memory(
      std::runtime_error("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes.")));
  EXPECT_FALSE(detail::is_out_of_memory(std::runtime_error("something else")));
  try {
    testing::run_out_of_memory();
  } catch (const std::exception& error) {
    EXPECT_TRUE(detail::is_out_of_memory(error)) << error.what();
  }
}

TEST(BatchSizeSearch, NeverTriesMoreThanIsAllowed) {
  for (const auto mode : {BatchSizeMode::kPower, BatchSizeMode::kBinsearch}) {
    std::vector<std::int64_t> tried;
    const auto fits = [&](std::int64_t size) {
      tried.push_back(size);
      return detail::TrialOutcome::kFits;
    };
    EXPECT_EQ(detail::search_batch_size({.mode = mode, .margin = 0, .max_val = 300}, fits), 300);
    EXPECT_THAT(tried, Each(Le(300)));
    EXPECT_EQ(detail::search_batch_size({.mode = mode, .init_val = 4, .max_trials = 1, .margin = 0}, fits),
              4);
    EXPECT_EQ(detail::search_batch_size({.mode = mode, .max_trials = 0, .margin = 0}, fits), 2);
  }
}

TEST_F(BatchSizeFinderTest, FindsWhatLightningFinds) {
  for (const auto& run : golden_tuner()["scale_batch_size"]) {
    if (!run["expected_error"].is_null()) continue;
    SCOPED_TRACE(run.dump());
    auto model = seeded_model();
    model->fits = run["oom_above"];
    if (run["message"] != "cpu") model->message = run["message"];
    const auto rows = data(run["dataset"]);
    std::vector<std::int64_t> tried;
    auto how = options_of(run);
    how.apply = [&](std::int64_t size) {
      tried.push_back(size);
      rows->set_batch_size(size);
    };
    const auto found = find(model, how, rows);
    ASSERT_TRUE(found);
    expect_result(run, *found);
    EXPECT_EQ(tried.back(), *found);
    tried.pop_back();
    if (run["not_copied"].is_null() && run["oom_above"] != 1) {
      EXPECT_EQ(json(tried), run["peer_tried"]);
    }
  }
}

TEST_F(BatchSizeFinderTest, RunsAsManyStepsAsAreAskedForWithEachSize) {
  auto model = seeded_model();
  model->fits = 4;
  EXPECT_EQ(find(model, {.steps_per_trial = 2}, data(64)), 4);
  EXPECT_THAT(model->sizes, ElementsAre(2, 2, 4, 4, 8));
}

TEST_F(BatchSizeFinderTest, FailsWhereNothingFits) {
  for (const auto mode : {BatchSizeMode::kPower, BatchSizeMode::kBinsearch}) {
    auto model = seeded_model();
    model->fits = 0;
    expect_error<ConfigError>([&] { find(model, {.mode = mode}, data(64)); }, {"no batch size fits"});
  }
}

TEST_F(BatchSizeFinderTest, OtherErrorsEndTheSearchAndWeightsAreAsBefore) {
  auto model = seeded_model();
  model->fits = 4;
  model->message = "something else";
  const auto before = module_state(*model).clone();
  expect_error<std::runtime_error>([&] { find(model, {}, data(64)); }, {"something else"});
  EXPECT_TRUE(module_state(*model) == before);
}

TEST_F(BatchSizeFinderTest, LeavesNothingBehind) {
  auto model = seeded_model();
  model->fits = 16;
  model->save_in = folder_ / "x.ckpt";
  model->net[1]->eval();  // a flag of one layer's own
  const auto before = module_state(*model).clone();
  const auto random = random_state().clone();
  const auto chosen = options();
  Trainer trainer(chosen);
  Tuner tuner(trainer);
  EXPECT_EQ(tuner.scale_batch_size(model, data(256)), 16);
  EXPECT_TRUE(module_state(*model) == before);
  EXPECT_TRUE(random_state() == random);
  EXPECT_EQ(model->steps, 0);
  EXPECT_FALSE(model->net[1]->is_training());
  EXPECT_TRUE(model->is_training());
  for (const auto& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_EQ(trainer.global_step(), 0);
  EXPECT_TRUE(trainer.callback_metrics().empty());
  EXPECT_FALSE(std::filesystem::exists(model->save_in));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "run" / "checkpoints"));
  const auto summary = json::parse(std::ifstream(folder_ / "run" / "summary.json"));
  EXPECT_EQ(summary["tuned"]["batch_size"].dump(), "16");
  EXPECT_EQ(summary["steps"], 0);
}

// The same bits and the same rows as a run that begins with the size.
TEST_F(BatchSizeFinderTest, ARunGoesOnAsIfItHadKnown) {
  struct Run {
    StateTree weights;
    std::string rows;
  };
  const auto run = [&](std::vector<std::shared_ptr<Callback>> callbacks, std::int64_t batch_size) {
    int batches_seen = 0;
    callbacks.insert(callbacks.begin(),
                     std::make_shared<LambdaCallback>(LambdaHooks{
                         .on_train_batch_end = [&](StepContext&, const TrainOutput&) { ++batches_seen; }}));
    auto chosen = options(std::move(callbacks));
    chosen.max_epochs = 2;
    chosen.run.run_dir = folder_ / ("run" + std::to_string(batch_size));
    auto model = seeded_model();
    model->fits = 16;
    Trainer trainer(chosen);
    trainer.fit(model, data(100, batch_size));
    EXPECT_EQ(trainer.global_step(), 14);
    EXPECT_EQ(batches_seen, 14);
    std::ifstream file(chosen.run.run_dir / "metrics.csv");
    return Run{module_state(*model).clone(), {std::istreambuf_iterator<char>(file), {}}};
  };
  const auto finder = std::make_shared<BatchSizeFinder>();
  const auto found = run({finder}, 1);
  EXPECT_EQ(finder->optimal_batch_size(), 16);
  const auto known = run({}, 16);
  EXPECT_TRUE(found.weights == known.weights);
  EXPECT_EQ(found.rows, known.rows);
  EXPECT_GT(known.rows.size(), 100U);
}

TEST_F(BatchSizeFinderTest, TriesTheOtherStages) {
  for (const auto stage : {Stage::kValidate, Stage::kTest, Stage::kPredict}) {
    auto model = seeded_model();
    model->fits = 8;
    std::vector<std::int64_t> asked;
    const auto make_loader = [&](std::int64_t size) {
      asked.push_back(size);
      return loader(rows(64), {.batch_size = size});
    };
    Trainer trainer(options());
    EXPECT_EQ(Tuner(trainer).scale_batch_size(model, make_loader, {.method = stage}), 8);
    EXPECT_EQ(asked.back(), 8);
    EXPECT_TRUE(trainer.callback_metrics().empty());
  }
}

TEST_F(BatchSizeFinderTest, WhatCannotWorkIsRefused) {
  struct Fixed final : DataModule<Example> {
    std::optional<Loader<Example>> train_dataloader() override { return loader(rows(64), {.batch_size = 2}); }
  };
  auto model = seeded_model();
  expect_error<ConfigError>([&] { find(model, {}, std::make_shared<Fixed>()); },
                            {"batch_size", "set_batch_size()", "apply"});
  expect_error<ConfigError>([&] { find(model, {.apply = [](std::int64_t) {}}, std::make_shared<Fixed>()); },
                            {"do not change", "from 2 to 4", "got 2"});
  expect_error<ConfigError>([&] { find(model, {.margin = 1}, data(8)); }, {"margin", "0..0.9999"});
  expect_error<ConfigError>([&] { find(model, {.method = Stage::kSanityCheck}, data(8)); }, {"method"});
  auto without = options();
  without.limit_train_batches = 0;
  Trainer limited(without);
  expect_error<ConfigError>([&] { Tuner(limited).scale_batch_size(model, data(8)); },
                            {"scale_batch_size needs batches", "limit_train_batches above 0"});
  const auto finder = std::make_shared<BatchSizeFinder>();
  expect_error<ConfigError>(
      [&] { Trainer(options({finder})).fit(model, loader(rows(8), {.batch_size = 2})); },
      {"dataloaders passed directly to `.fit()`", "data module"});
  Trainer trainer(options({finder}));
  expect_error<ConfigError>([&] { Tuner(trainer).scale_batch_size(model, data(8)); },
                            {"already configured with a `BatchSizeFinder`"});
  expect_error<ConfigError>([] { BatchSizeFinder({.method = Stage::kTest}); }, {"BatchSizeFinder", "kFit"});
}

TEST_F(BatchSizeFinderTest, AFastDevRunIsNotSearched) {
  auto chosen = options();
  chosen.fast_dev_run = true;
  auto model = seeded_model();
  Trainer trainer(chosen);
  EXPECT_FALSE(Tuner(trainer).scale_batch_size(model, data(8)));
  EXPECT_EQ(model->sizes.size(), 0U);
}

// Its batches are those of the checkpoint.
TEST_F(BatchSizeFinderTest, ARunThatGoesOnIsNotSearched) {
  auto model = seeded_model();
  Trainer(options()).fit(model, data(32, 4));
  const auto finder = std::make_shared<BatchSizeFinder>();
  auto chosen = options({finder});
  chosen.max_epochs = 2;
  model->sizes.clear();
  Trainer(chosen).fit(model, data(32, 4), folder_ / "run" / "checkpoints" / "last.ckpt");
  EXPECT_FALSE(finder->optimal_batch_size());
  EXPECT_THAT(model->sizes, ::testing::AllOf(::testing::SizeIs(8), Each(4)));
}

struct WithoutOwnImpl final : testing::HungryImpl {
  Optimizers configure_optimizers() override { return {}; }
};

// DeepSpeed's file: "auto" are numbers of the run with the batches found, and a size that it gives stays.
TEST_F(BatchSizeFinderTest, HeedsDeepSpeedsFile) {
  const auto fit = [&](const std::string& size) {
    const auto file = folder_.file("ds.json", R"({"train_micro_batch_size_per_gpu": )" + size + R"(,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.1}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.1,
                      "warmup_num_steps": 1, "total_num_steps": "auto"}}})");
    double last_rate = 0;
    auto chosen =
        options({std::make_shared<LambdaCallback>(LambdaHooks{.on_train_end = [&](TrainContext& context) {
          last_rate = context.optimizer().groups().front().lr;
        }})});
    if (size != "4")
      chosen.callbacks.push_back(std::make_shared<BatchSizeFinder>(ScaleBatchSizeOptions{.max_trials = 2}));
    chosen.strategy = DeepSpeed{.config = file};
    Trainer(chosen).fit(std::make_shared<WithoutOwnImpl>(), data(32, size == "4" ? 4 : 2));
    return last_rate;
  };
  EXPECT_EQ(fit("\"auto\""), fit("4")) << "batches of 4 are found";
  expect_error<ConfigError>([&] { fit("2"); }, {"train_micro_batch_size_per_gpu", "disagree"});
}

TEST_F(BatchSizeFinderTest, ARunThatGoesOnWithOtherBatchesSaysSo) {
  auto model = seeded_model();
  Trainer(options({std::make_shared<BatchSizeFinder>(ScaleBatchSizeOptions{.max_trials = 2})}))
      .fit(model, data(32, 2));
  auto chosen = options({std::make_shared<BatchSizeFinder>()});
  chosen.max_epochs = 2;
  ::testing::internal::CaptureStderr();
  Trainer(chosen).fit(model, data(32, 2), folder_ / "run" / "checkpoints" / "last.ckpt");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("had found batches of 4 samples, and this run's have 2"));
}

}  // namespace
}  // namespace lockstep
