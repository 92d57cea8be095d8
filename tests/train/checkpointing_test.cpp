// The Trainer saves where it is asked to, and nowhere else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include "formats/checkpoint_folders.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace lockstep {
namespace {

struct CountingNetImpl : Module<Example> {
  CountingNetImpl() { weight = register_parameter("weight", torch::zeros({1})); }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    return -(weight * batch.data.mean()).sum();  // adds 1 with each step
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{.lr = 1.0}}; }
  torch::Tensor weight;
};
TORCH_MODULE(CountingNet);

struct OtherImpl : CountingNetImpl {
  OtherImpl() { more = register_parameter("more", torch::zeros({2})); }
  void validation_step(const Example&, StepContext&) override {}
  torch::Tensor more;
};

struct SaveAtBatch final : Callback {
  SaveAtBatch(std::filesystem::path folder_, std::int64_t batch_)
      : folder(std::move(folder_)), batch(batch_) {}
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    if (step.batch_idx() == batch) step.save_checkpoint(folder);
  }
  std::filesystem::path folder;
  std::int64_t batch;
};

struct SaveInBatch final : Callback {
  void on_after_backward(StepContext& step) override { step.save_checkpoint("x.ckpt"); }
};

class Checkpointing : public ::testing::Test {
 protected:
  TrainerOptions options(std::vector<std::shared_ptr<Callback>> callbacks = {}) {
    TrainerOptions found{.max_epochs = 1, .enable_progress_bar = false, .callbacks = std::move(callbacks)};
    found.run.run_dir = folder_ / "run";
    return found;
  }
  static Loader<Example> six_batches() {
    return loader(tensor_dataset(torch::ones({6, 1})), {.batch_size = 1});
  }
  static float weight_in(const std::filesystem::path& folder) {
    return Checkpoint(folder).entry("model").get<at::Tensor>("weight").item<float>();
  }

  test::TemporaryFolder folder_;
};

TEST_F(Checkpointing, SavesTheMomentAlsoInTheBackground) {
  for (const bool async_checkpoint : {false, true}) {
    auto chosen = options({std::make_shared<SaveAtBatch>(folder_ / "x.ckpt", 3)});
    chosen.async_checkpoint = async_checkpoint;
    Trainer(chosen).fit(CountingNet(), six_batches());
    EXPECT_EQ(weight_in(folder_ / "x.ckpt"), 4);
    EXPECT_EQ(weight_in(folder_ / "run" / "checkpoints" / "last.ckpt"), 6);
  }
}

TEST_F(Checkpointing, GoesOnFromAPathGivenToFit) {
  Trainer(options({std::make_shared<SaveAtBatch>(folder_ / "x.ckpt", 3)})).fit(CountingNet(), six_batches());
  CountingNet model;
  Trainer trainer(options());
  trainer.fit(model, six_batches(), std::nullopt, folder_ / "x.ckpt");
  EXPECT_EQ(model->weight.item<float>(), 6);
  EXPECT_EQ(trainer.global_step(), 6);
}

// Where folders cannot trade places, and the process was killed between two renames.
TEST_F(Checkpointing, GoesOnFromOneThatWasMovedAside) {
  Trainer(options()).fit(CountingNet(), six_batches());
  const auto last = folder_ / "run" / "checkpoints" / "last.ckpt";
  std::filesystem::rename(last, detail::new_sibling(last, detail::kOlder));
  for (const auto* ckpt_path : {"", "last"}) {
    auto chosen = options();
    chosen.max_epochs = 2;
    chosen.enable_checkpointing = false;
    chosen.run.resume = Resume::kAuto;
    CountingNet model;
    Trainer(chosen).fit(model, six_batches(), std::nullopt, ckpt_path);
    EXPECT_EQ(model->weight.item<float>(), 12) << ckpt_path;
  }
}

TEST_F(Checkpointing, SavesAfterFit) {
  auto chosen = options();
  Trainer trainer(chosen);
  EXPECT_THROW(trainer.save_checkpoint(folder_ / "early.ckpt"), ConfigError);
  Trainer fitting(chosen);
  fitting.fit(CountingNet(), six_batches());
  fitting.save_checkpoint(folder_ / "final.ckpt");
  EXPECT_EQ(weight_in(folder_ / "final.ckpt"), 6);
  chosen.max_epochs = 2;
  Trainer more(chosen);
  CountingNet model;
  more.fit(model, six_batches(), std::nullopt, folder_ / "final.ckpt");
  EXPECT_EQ(model->weight.item<float>(), 12);
}

TEST_F(Checkpointing, SavesWeightsOnly) {
  Trainer trainer(options());
  trainer.fit(CountingNet(), six_batches());
  trainer.save_checkpoint(folder_ / "weights.ckpt", true);
  EXPECT_EQ(load_from_checkpoint<CountingNetImpl>(folder_ / "weights.ckpt")->weight.item<float>(), 6);
  EXPECT_EQ(Checkpoint(folder_ / "weights.ckpt").shared().size(), 2);
  test::expect_error<CheckpointError>(
      [&] { Trainer(options()).fit(CountingNet(), six_batches(), std::nullopt, folder_ / "weights.ckpt"); },
      {"weights only", "--init_weights"});
}

TEST_F(Checkpointing, OfALoopOfItsOwnIsKnownAsSuch) {
  const auto refused = [&](const StateTree& saved, const std::vector<std::string>& parts) {
    save_checkpoint(folder_ / "own.ckpt", {.shared = saved}, {});
    test::expect_error<CheckpointError>(
        [&] { Trainer(options()).fit(CountingNet(), six_batches(), std::nullopt, folder_ / "own.ckpt"); },
        parts);
  };
  StateTree saved;
  saved.set("step", std::int64_t{3});
  refused(saved, {"no run of fit", "got step, as Fabric", "Fabric::load()"});
  saved.set("model", StateTree());
  refused(saved, {"got step, model, as Fabric", "--init_weights"});
}

TEST_F(Checkpointing, IsNotAskedForInTheSanityCheck) {
  struct SaveInValidation final : Callback {
    explicit SaveInValidation(std::filesystem::path folder_) : folder(std::move(folder_)) {}
    void on_validation_end(TrainContext& context) override {
      if (context.stage() == Stage::kSanityCheck) ++sanity_checks;
      context.save_checkpoint(folder);
    }
    std::filesystem::path folder;
    int sanity_checks = 0;
  };
  struct WithValidationImpl : CountingNetImpl {
    void validation_step(const Example&, StepContext&) override {}
  };
  const auto saver = std::make_shared<SaveInValidation>(folder_ / "x.ckpt");
  Trainer(options({saver})).fit(std::make_shared<WithValidationImpl>(), six_batches(), six_batches());
  EXPECT_EQ(saver->sanity_checks, 1);
  EXPECT_EQ(weight_in(folder_ / "x.ckpt"), 6);
}

TEST_F(Checkpointing, LeavesTheTrainerUsableWhereItCannotBeWritten) {
  Trainer trainer(options());
  trainer.fit(CountingNet(), six_batches());
  EXPECT_THROW(trainer.save_checkpoint("/proc/none/x.ckpt"), IoError);
  trainer.save_checkpoint(folder_ / "x.ckpt");
  EXPECT_EQ(weight_in(folder_ / "x.ckpt"), 6);
}

TEST_F(Checkpointing, RefusesInsideABatch) {
  test::expect_error<ConfigError>(
      [&] { Trainer(options({std::make_shared<SaveInBatch>()})).fit(CountingNet(), six_batches()); },
      {"inside a batch", "on_train_batch_end"});
}

TEST_F(Checkpointing, RefusesAnotherModelByName) {
  Trainer(options()).fit(CountingNet(), six_batches());
  const auto last = folder_ / "run" / "checkpoints" / "last.ckpt";
  auto chosen = options();
  chosen.run.run_dir = folder_ / "other";
  test::expect_error<CheckpointError>(
      [&] { Trainer(chosen).fit(std::make_shared<OtherImpl>(), six_batches(), std::nullopt, last); },
      {"more"});
}

TEST_F(Checkpointing, LoadsWhatBothHaveIntoAModelThatIsNotStrict) {
  struct Forgiving : OtherImpl {
    bool strict_loading() const override { return false; }
  };
  Trainer(options()).fit(CountingNet(), six_batches());
  const auto last = folder_ / "run" / "checkpoints" / "last.ckpt";
  auto chosen = options();
  chosen.run.run_dir = folder_ / "other";
  const auto model = std::make_shared<Forgiving>();
  ::testing::internal::CaptureStderr();
  Trainer(chosen).validate(model, six_batches(), last);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("in the model but not in"));
  EXPECT_EQ(model->weight.item<float>(), 6);
  EXPECT_EQ(load_from_checkpoint<CountingNetImpl>(last)->weight.item<float>(), 6);
}

TEST_F(Checkpointing, ChoosesTheLastOneOfACluster) {
  for (const auto& [batch, name] : {std::pair(2, "hpc_ckpt_10"), std::pair(4, "hpc_ckpt_9")})
    Trainer(options({std::make_shared<SaveAtBatch>(
                folder_ / "run" / "checkpoints" / (std::string(name) + ".ckpt"), batch)}))
        .fit(CountingNet(), six_batches());
  Trainer trainer(options());
  CountingNet model;
  trainer.fit(model, six_batches(), std::nullopt, "hpc");
  EXPECT_EQ(model->weight.item<float>(), 6);
  EXPECT_EQ(trainer.global_step(), 6);
}

TEST_F(Checkpointing, RefusesNamesThatNothingStandsFor) {
  for (const auto* name : {"hpc", "best"})
    test::expect_error<ConfigError>(
        [&] { Trainer(options()).fit(CountingNet(), six_batches(), std::nullopt, name); },
        {"ckpt_path", name});
}

}  // namespace
}  // namespace lockstep
