// What is recorded of settings that come from a checkpoint.
#include "train/checkpoints/optimizer_settings.h"

#include "train/slope.h"

namespace lockstep {
namespace {

TEST(OptimizerSettings, AreWrittenWhereTheirKeyIs) {
  const std::string yaml =
      "lr: 1\ntrainer:\n  max_epochs: 2\noptimizer:\n  name: sgd\n  lr: 0.5\n  inner:\n    lr: 3\nother:\n"
      "  lr: 0.5\n  list:\n    - lr: 4\n";
  const auto with = [&](const char* key) { return detail::with_scalar(yaml, key, "0.01"); };
  const auto changed = [&](const char* from, const char* to) {
    auto text = yaml;
    return text.replace(text.find(from), std::string(from).size(), to);
  };
  EXPECT_EQ(with("optimizer.lr"), changed("sgd\n  lr: 0.5", "sgd\n  lr: 0.01"));
  EXPECT_EQ(with("optimizer.inner.lr"), changed("lr: 3", "lr: 0.01"));
  EXPECT_EQ(with("other.lr"), changed("other:\n  lr: 0.5", "other:\n  lr: 0.01"));
  EXPECT_EQ(with("lr"), changed("lr: 1", "lr: 0.01"));
  EXPECT_EQ(with("optimizer.momentum"), yaml);
}

struct Settled : testing::SlopeImpl {
  explicit Settled(SGD chosen, std::optional<LRScheduler> schedule = {})
      : sgd(std::move(chosen)), scheduler(std::move(schedule)) {}
  Optimizers configure_optimizers() override { return {.optimizer = sgd, .lr_scheduler = scheduler}; }
  SGD sgd;
  std::optional<LRScheduler> scheduler;
};

using KeptSettingsOfRuns = testing::SlopeTest;

TEST_F(KeptSettingsOfRuns, AreToldWhereTheyDifferAndByNameAlone) {
  const auto said_of = [&](const SGD& second, std::optional<LRScheduler> schedule = {}) {
    std::filesystem::remove_all(run_dir());
    const SGD first{.lr = 0.5, .momentum = 0.5, .weight_decay = 0.25};
    Trainer(options(1)).fit(std::make_shared<Settled>(first, schedule), batches(2));
    ::testing::internal::CaptureStderr();
    Trainer(options(2)).fit(std::make_shared<Settled>(second, schedule), batches(2), {}, "last");
    const auto text = ::testing::internal::GetCapturedStderr();
    const auto begin = text.find("its checkpoint: ");
    return begin == text.npos ? std::string() : text.substr(begin + 16, text.find(", which") - begin - 16);
  };
  EXPECT_EQ(said_of({.lr = 0.5, .momentum = 0.5, .weight_decay = 0.25}), "");
  EXPECT_EQ(said_of({.lr = 1, .momentum = 0.5, .weight_decay = 0.25}), "lr 0.5, not 1.0");
  EXPECT_EQ(said_of({.lr = 0.5, .momentum = 0.75, .weight_decay = 0}),
            "weight_decay 0.25, not 0.0; momentum 0.5, not 0.75");
  const LRScheduler half{.scheduler = ExponentialLR{.gamma = 0.5}, .interval = Interval::kStep};
  EXPECT_EQ(said_of({.lr = 0.5, .momentum = 0.5, .weight_decay = 0.25}, half), "");
  EXPECT_EQ(said_of({.lr = 0.125, .momentum = 0.5, .weight_decay = 0.25}, half), "lr 0.5, not 0.125");
  // Momentum decides on whether there is state of the optimizer's at all.
  EXPECT_EQ(said_of({.lr = 0.5, .momentum = 0, .weight_decay = 0.25}), "momentum 0.5, not 0.0");
  // Whose rates do not come from the optimizer's.
  const LRScheduler cycle{.scheduler = OneCycleLR{.max_lr = 1, .total_steps = 10},
                          .interval = Interval::kStep};
  EXPECT_EQ(said_of({.lr = 0.125, .momentum = 0.5, .weight_decay = 0.25}, cycle), "");
}

// A schedule that the checkpoint does not have begins where the run goes on.
TEST_F(KeptSettingsOfRuns, AreThoseOfTheCheckpointWhereItHasAnotherSchedule) {
  const LRScheduler half{.scheduler = ExponentialLR{.gamma = 0.5}, .interval = Interval::kStep};
  const LRScheduler steps{.scheduler = StepLR{.step_size = 1, .gamma = 0.25}, .interval = Interval::kStep};
  const std::vector<std::tuple<std::optional<LRScheduler>, std::optional<LRScheduler>, std::string, double>>
      vectors{{std::nullopt, half, "was none in the checkpoint, and is ExponentialLR", -2 - 1 - 0.5},
              {half, std::nullopt, "was ExponentialLR in the checkpoint, and is none", -1.5 - 2 * 0.25},
              {half, steps, "was ExponentialLR in the checkpoint, and is StepLR", -1.5 - 1 - 0.25}};
  for (const auto& [first, second, said, weight] : vectors) {
    std::filesystem::remove_all(run_dir());
    Trainer(options(1)).fit(std::make_shared<Settled>(SGD{.lr = 1}, first), batches(2));
    const auto model = std::make_shared<Settled>(SGD{.lr = 1}, second);
    ::testing::internal::CaptureStderr();
    Trainer(options(2)).fit(model, batches(2), {}, "last");
    const auto text = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find(said), text.npos) << text;
    EXPECT_EQ(model->weight.item<float>(), static_cast<float>(weight)) << said;
  }
}

TEST_F(KeptSettingsOfRuns, NoMomentumIsKeptToo) {
  Trainer(options(1)).fit(std::make_shared<Settled>(SGD{.lr = 1}), batches(2));
  const auto model = std::make_shared<Settled>(SGD{.lr = 1, .momentum = 0.9});
  ::testing::internal::CaptureStderr();
  Trainer(options(2)).fit(model, batches(2), {}, "last");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("momentum 0.0, not 0.9"), std::string::npos);
  EXPECT_EQ(model->weight.item<float>(), -4);
}

}  // namespace
}  // namespace lockstep
