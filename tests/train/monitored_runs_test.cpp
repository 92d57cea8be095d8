// What monitors keep of runs of random metrics: beside a model of the rules, and wherever the run ends.
#include <csignal>
#include <limits>
#include <thread>

#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "train/scripted_losses.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::MonitoredRuns;
using testing::one_of;
using testing::Random;
using testing::random_losses;
using testing::ScriptedLosses;

struct Kept {
  std::int64_t epoch = 0;
  double value = 0;
  bool is_measured = true;
};

// The rules: what was measured is better than what was not, of which the latest is the best; NaN is the worst
// value; of equal ones the first saved is the best, and the first to go.
struct RankingModel {
  int top_k;
  double sign;
  std::vector<Kept> kept = {};

  bool better(const Kept& one, const Kept& other) const {
    if (one.is_measured != other.is_measured) return one.is_measured;
    return one.is_measured ? sign * one.value < sign * other.value : one.epoch > other.epoch;
  }
  void save(Kept next) {
    if (!next.is_measured || std::isnan(next.value))
      next.value = sign * std::numeric_limits<double>::infinity();
    if (top_k > 0 && std::ssize(kept) == top_k) {
      auto worst = kept.begin();
      for (auto at = kept.begin(); at != kept.end(); ++at)
        if (better(*worst, *at)) worst = at;
      if (!better(next, *worst)) return;
      kept.erase(worst);
    }
    kept.push_back(next);
  }
  const Kept& best() const {
    const auto* found = &kept.front();
    for (const auto& each : kept)
      if (better(each, *found)) found = &each;
    return *found;
  }
};

TEST_F(MonitoredRuns, RankAsTheModelDoesAlsoOnResume) {
  constexpr std::int64_t kEpochs = 13;
  for (unsigned seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto losses = random_losses(random, kEpochs);
    const auto top_k = static_cast<int>(one_of(random, {1, 2, 3, -1}));
    const bool is_max = random() % 2 == 1;
    const auto every = static_cast<int>(one_of(random, {1, 1, 2}));  // epochs from one validation to the next
    RankingModel rules{.top_k = top_k, .sign = is_max ? -1.0 : 1.0};
    fs::remove_all(run_dir());
    std::shared_ptr<ModelCheckpoint> callback;
    const auto run = [&](std::int64_t epochs, const std::string& from) {
      callback = std::make_shared<ModelCheckpoint>(
          ModelCheckpointOptions{.filename = "{epoch}",
                                 .monitor = "val_loss",
                                 .save_top_k = top_k,
                                 .mode = is_max ? MonitorMode::kMax : MonitorMode::kMin,
                                 .save_on_train_epoch_end = true});
      ScriptedLosses model;
      model->losses = losses;
      auto chosen = quiet(epochs, {callback});
      chosen.check_val_every_n_epoch = every;
      Trainer(chosen).fit(model, batches(1), batches(1), from);
    };
    const auto half = 1 + static_cast<std::int64_t>(random() % (kEpochs - 1));
    run(half, {});
    run(kEpochs, "last");
    for (std::int64_t epoch = every - 1; epoch < kEpochs; ++epoch) {
      const bool is_measured = (epoch + 1) % every == 0;
      const auto number = static_cast<std::size_t>((epoch + 1) / every - 1);
      rules.save({.epoch = epoch, .value = losses[number], .is_measured = is_measured});
    }
    std::map<fs::path, double> expected;
    const auto path = [&](const Kept& each) {
      return checkpoints() / ("epoch=" + std::to_string(each.epoch) + ".ckpt");
    };
    Names names;
    for (const auto& each : rules.kept) {
      expected[path(each)] = each.value;
      names.push_back(path(each).filename());
    }
    std::ranges::sort(names);
    EXPECT_EQ(callback->best_k_models(), expected);
    EXPECT_EQ(callback->best_model_path(), path(rules.best()));
    EXPECT_EQ(callback->best_model_score(),
              rules.best().is_measured ? std::optional(rules.best().value) : std::nullopt);
    EXPECT_EQ(kept(), names);
  }
}

// An epoch that is cut has weights that no validation has seen.
TEST_F(MonitoredRuns, ACutEpochDoesNotRankByTheValueBefore) {
  for (const int top_k : {1, 2, 3}) {
    fs::remove_all(run_dir());
    const auto callback = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{
        .filename = "{epoch}-{val_loss:.0f}", .monitor = "val_loss", .save_top_k = top_k});
    ScriptedLosses model;
    model->losses = {3, 2};
    auto chosen = quiet(-1, {callback});
    chosen.max_steps = 10;
    ::testing::internal::CaptureStderr();
    Trainer(chosen).fit(model, batches(4), batches(1));
    const auto said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("was not measured for the weights of step 10, but for those of step 8"), said.npos)
        << said;
    EXPECT_EQ(callback->best_model_path().filename(), "epoch=1-val_loss=2.ckpt");
    Names expected{"epoch=0-val_loss=3.ckpt", "epoch=1-val_loss=2.ckpt", "epoch=2-val_loss=nan.ckpt"};
    expected.resize(static_cast<std::size_t>(top_k));
    if (top_k == 1) expected = {"epoch=1-val_loss=2.ckpt"};
    EXPECT_EQ(kept(), expected);
  }
}

// ModelCheckpoint saves at the end of the cut epoch, behind the moment from which a longer run goes on.
TEST_F(MonitoredRuns, ARunThatGoesOnKnowsWhatACutEpochHasSaved) {
  for (const auto& [max_steps, names] :
       {std::pair{10, Names{"step=10.ckpt"}}, std::pair{11, Names{"step=11.ckpt"}}}) {
    fs::remove_all(run_dir());
    std::shared_ptr<ModelCheckpoint> callback;
    const auto run = [&](std::int64_t steps, const std::string& from) {
      callback = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.filename = "{step}"});
      auto chosen = quiet(-1, {callback});
      chosen.max_steps = steps;
      Trainer(chosen).fit(testing::Slope(), batches(4), batches(1), from);
    };
    run(10, {});
    run(max_steps, "last");
    EXPECT_EQ(callback->best_model_path(), checkpoints() / names.front());
    EXPECT_EQ(kept(), names);
  }
}

// Lightning's: every n steps, whatever was measured.
TEST_F(MonitoredRuns, StepsBetweenValidationsAreSavedToo) {
  const auto callback = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{
      .filename = "{step}", .monitor = "val_loss", .save_top_k = -1, .every_n_train_steps = 2});
  ScriptedLosses model;
  model->losses = {3, 2, 4};
  Trainer(quiet(3, {callback})).fit(model, batches(4), batches(1));
  EXPECT_THAT(kept(), ::testing::ElementsAre("step=10.ckpt", "step=12.ckpt", "step=4.ckpt", "step=6.ckpt",
                                             "step=8.ckpt"));
  EXPECT_EQ(callback->best_model_path().filename(), "step=8.ckpt");
}

// ---- every way in which a run ends before its first validation, beside every callback that monitors

struct WayToEnd {
  const char* name;
  std::function<void(TrainerOptions&)> set;
};

std::function<void(TrainerOptions&)> in_third_batch(const std::function<void(StepContext&)>& act) {
  return [act](TrainerOptions& chosen) {
    chosen.callbacks.push_back(std::make_shared<LambdaCallback>(
        LambdaHooks{.on_train_batch_end = [act](StepContext& step, const TrainOutput&) {
          if (step.batch_idx() == 2) act(step);
        }}));
  };
}

const std::vector<WayToEnd>& ways_to_end() {
  static const std::vector<WayToEnd> ways{
      {"max_steps", [](auto& chosen) { chosen.max_steps = 3; }},
      {"max_time",
       [](auto& chosen) {
         chosen.max_time = std::chrono::milliseconds(1);
         in_third_batch([](StepContext&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); })(
             chosen);
       }},
      {"stop", in_third_batch([](StepContext& step) { step.stop(); })},
      {"max_epochs", [](auto& chosen) { chosen.check_val_every_n_epoch = 2; }},
      {"SIGTERM", in_third_batch([](StepContext&) { std::raise(SIGTERM); })}};
  return ways;
}

using MadeCallback = std::function<std::shared_ptr<Callback>()>;

TEST_F(MonitoredRuns, MayEndBeforeTheFirstValidation) {
  const auto checkpoint = [](std::optional<bool> at_epoch_end, std::optional<std::int64_t> steps) {
    return std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{
        .monitor = "val_loss", .every_n_train_steps = steps, .save_on_train_epoch_end = at_epoch_end});
  };
  const std::vector<MadeCallback> monitors{
      [&] { return checkpoint({}, {}); }, [&] { return checkpoint(true, {}); },
      [&] { return checkpoint({}, 1); },
      [] { return std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss"}); },
      [] {
        return std::make_shared<EarlyStopping>(
            EarlyStoppingOptions{.monitor = "val_loss", .check_on_train_epoch_end = true});
      }};
  for (const auto& way : ways_to_end()) {
    for (std::size_t i = 0; i < monitors.size(); ++i) {
      SCOPED_TRACE(way.name + std::string(", monitor ") + std::to_string(i));
      fs::remove_all(run_dir());
      auto chosen = quiet(1, {monitors[i]()});
      way.set(chosen);
      ::testing::internal::CaptureStderr();
      std::string error;
      try {
        Trainer(chosen).fit(ScriptedLosses(), batches(6), batches(1));
      } catch (const std::exception& failure) {
        error = failure.what();
      }
      const auto said = ::testing::internal::GetCapturedStderr();
      EXPECT_EQ(error.find("not logged"), error.npos) << error;
      EXPECT_EQ(error.empty(), way.name != std::string("SIGTERM")) << error;
      EXPECT_TRUE(fs::exists(checkpoints() / "last.ckpt"));
    }
  }
}

// Without a validation nothing will ever log it.
TEST_F(MonitoredRuns, NameLimitValBatchesWhereItKeepsTheMetricAway) {
  const std::vector<std::shared_ptr<Callback>> monitors{
      std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.monitor = "val_loss"}),
      std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss"})};
  for (const auto& monitor : monitors) {
    auto chosen = quiet(1, {monitor});
    chosen.limit_val_batches = 0;
    test::expect_error<ConfigError>([&] { Trainer(chosen).fit(testing::Slope(), batches(2), batches(1)); },
                                    {"val_loss", "train_loss", "limit_val_batches is 0"});
  }
}

}  // namespace
}  // namespace lockstep
