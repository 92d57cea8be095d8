// What is recorded of settings that come from a checkpoint.
#include "train/checkpoints/optimizer_settings.h"

#include <gmock/gmock.h>
#include <lockstep/testing/fork_ranks.h>

#include <map>
#include <sstream>

#include "train/slope.h"
#include "train/trainer_rank.h"

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

// argument: strategy, momenta of the run and of the one that goes on, folder, separated by commas. Returns
// what is said of momentum, and the weight.
LOCKSTEP_RANK_BODY(change_momentum)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  static const std::map<std::string, StrategyOptions> table{
      {"ddp", Ddp{}},
      {"fsdp", Fsdp{}},
      {"NO_SHARD", Fsdp{.sharding_strategy = "NO_SHARD"}},
      {"stage 1", DeepSpeed{.stage = 1}},
      {"stage 3", DeepSpeed{.stage = 3}}};
  std::istringstream text(argument);
  std::string strategy, before, after, folder;
  for (auto* part : {&strategy, &before, &after, &folder}) std::getline(text, *part, ',');
  std::string said;
  const auto fit = [&](double momentum, std::int64_t epochs, const std::string& from) {
    TrainerOptions chosen{.max_epochs = epochs,
                          .strategy = table.at(strategy),
                          .devices = comm.size(),
                          .logger = false,
                          .enable_progress_bar = false};
    chosen.enable_model_summary = false;
    chosen.run.run_dir = folder;
    const auto model = std::make_shared<Settled>(SGD{.lr = 1, .momentum = momentum});
    ::testing::internal::CaptureStderr();
    Trainer(chosen).fit(model, loader(tensor_dataset(torch::ones({8, 1})), {.batch_size = 1}), {}, from);
    said = ::testing::internal::GetCapturedStderr();
    restore_sharded(*model);
    return model->weight.item<float>();
  };
  (void)fit(std::stod(before), 1, "");
  const auto weight = fit(std::stod(after), 2, "last");
  const auto begin = said.find("momentum ");
  return (begin == said.npos ? "" : said.substr(begin, said.find(", which") - begin) + ": ") +
         std::to_string(weight);
}

TEST(KeptMomentum, IsThatOfTheCheckpointUnderEveryStrategy) {
  for (const std::string momenta : {"0,0.5", "0.5,0"}) {
    std::vector<std::string> expected;
    for (const std::string strategy : {"ddp", "fsdp", "NO_SHARD", "stage 1", "stage 3"}) {
      const test::TemporaryFolder folder;
      std::vector<std::string> got;
      for (const auto& rank : testing::fork_ranks(2, "change_momentum",
                                                  strategy + "," + momenta + "," + (folder / "run").string()))
        got.push_back(rank.error + rank.result);
      if (expected.empty()) expected = got;
      EXPECT_EQ(got, expected) << strategy << ' ' << momenta;
    }
    EXPECT_THAT(expected.front(), ::testing::StartsWith(momenta == "0,0.5" ? "momentum 0.0, not 0.5: "
                                                                           : "momentum 0.5, not 0.0: "));
  }
}

}  // namespace
}  // namespace lockstep
