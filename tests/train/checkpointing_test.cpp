// The Trainer saves where it is asked to, and nowhere else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>

#include "formats/checkpoint_folders.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "train/trainer_rank.h"

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

// Fits two epochs, or one, saves after it, and another one: the weights in the end.
LOCKSTEP_RANK_BODY(save_after_fit_and_go_on)(Communicator comm, std::string argument)->std::string {
  testing::become_trainer_rank(comm);
  const auto blank = argument.find(' ');
  const auto folder = std::filesystem::path(argument.substr(blank + 1));
  const auto fit = [&](int epochs, const std::string& from, bool saves) {
    TrainerOptions options{.devices = comm.size()};
    options.max_epochs = epochs;
    options.enable_progress_bar = false;
    if (argument.substr(0, blank) == "fsdp") options.strategy = Fsdp{};
    if (argument.substr(0, blank) == "deepspeed") options.strategy = DeepSpeed{.stage = 2};
    options.run.run_dir = folder / ("run" + std::to_string(epochs));
    options.enable_checkpointing = false;
    torch::manual_seed(1);
    struct NetImpl final : Module<Example> {
      NetImpl() { linear = register_module("linear", torch::nn::Linear(4, 3)); }
      torch::Tensor training_step(const Example& batch, StepContext&) override {
        return linear->forward(batch.data).square().sum();
      }
      Optimizers configure_optimizers() override { return {.optimizer = AdamW{.lr = 0.1}}; }
      torch::nn::Linear linear{nullptr};
    };
    const auto model = std::make_shared<NetImpl>();
    Trainer trainer(options);
    trainer.fit(model, loader(tensor_dataset(torch::ones({8, 4})), {.batch_size = 2}), std::nullopt, from);
    if (saves) trainer.save_checkpoint(folder / "after.ckpt");
    trainer.save_checkpoint(folder / "weights.ckpt", /*weights_only=*/true);
    std::string text;
    for (const auto& [name, tensor] : read_weights(folder / "weights.ckpt"))
      text += c10::str(name, tensor.to(at::kDouble).sum().item<double>(), ' ');
    comm.barrier();
    return text;
  };
  const auto undisturbed = fit(2, "", false);
  fit(1, "", true);
  return fit(2, (folder / "after.ckpt").string(), false) == undisturbed ? "" : "other weights";
}

TEST_F(Checkpointing, SavesAfterFitUnderStrategiesThatShard) {
  for (const std::string strategy : {"fsdp", "deepspeed"}) {
    for (const auto& rank :
         testing::fork_ranks(2, "save_after_fit_and_go_on", strategy + " " + (folder_ / strategy).string())) {
      EXPECT_EQ(rank.error, "") << strategy;
      EXPECT_EQ(rank.result, "") << strategy;
    }
  }
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

// What was found in fit, and is no tensor of the model: of the module, the data and a callback.
struct Finding {
  StateTree state() const {
    StateTree tree;
    tree.set("found", found);
    return tree;
  }
  void load(const StateTree& tree) { found = tree.get<std::int64_t>("found"); }
  std::int64_t found = 0;
};

struct FindingNetImpl final : CountingNetImpl {
  void on_train_start(TrainContext&) override { finding.found = 5; }
  void test_step(const Example& batch, StepContext& step) override {
    step.log("found", static_cast<double>(finding.found));
    step.log("data", batch.data.mean());
  }
  StateTree state() const override { return finding.state(); }
  void load_state(const StateTree& state) override { finding.load(state); }
  Finding finding;
};
TORCH_MODULE(FindingNet);

struct FindingData final : DataModule<Example> {
  std::optional<Loader<Example>> train_dataloader() override {
    finding.found = 7;
    return loader(tensor_dataset(torch::ones({6, 1})), {.batch_size = 1});
  }
  Loaders<Example> test_dataloaders() override {
    return {
        loader(tensor_dataset(torch::full({1, 1}, static_cast<double>(finding.found))), {.batch_size = 1})};
  }
  StateTree state() const override { return finding.state(); }
  void load_state(const StateTree& state) override { finding.load(state); }
  Finding finding;
};

struct FindingCallback final : Callback {
  std::string state_key() const override { return "finding"; }
  void on_train_start(TrainContext&) override { finding.found = 9; }
  StateTree state() const override { return finding.state(); }
  void load_state(const StateTree& state) override { finding.load(state); }
  Finding finding;
};

TEST_F(Checkpointing, EvaluationHasWhatFitHasFound) {
  const auto before = std::make_shared<FindingCallback>(), after = std::make_shared<FindingCallback>();
  Trainer fitting(options({before}));
  fitting.fit(FindingNet(), std::make_shared<FindingData>());
  fitting.save_checkpoint(folder_ / "final.ckpt");
  Trainer testing(options({after}));
  const auto metrics = testing.test(FindingNet(), std::make_shared<FindingData>(), folder_ / "final.ckpt");
  EXPECT_EQ(metrics.at("found"), 5);
  EXPECT_EQ(metrics.at("data"), 7) << "the loaders are made with it";
  EXPECT_EQ(after->finding.found, 9);
  EXPECT_EQ(load_from_checkpoint<FindingNetImpl>(folder_ / "final.ckpt")->finding.found, 5);
  // A callback that has seen a fit of its own knows more than the checkpoint.
  before->finding.found = 11;
  fitting.test(FindingNet(), std::make_shared<FindingData>(), folder_ / "final.ckpt");
  EXPECT_EQ(before->finding.found, 11);
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
  struct InStepImpl final : CountingNetImpl {
    torch::Tensor training_step(const Example& batch, StepContext& step) override {
      step.save_checkpoint("x.ckpt");
      return CountingNetImpl::training_step(batch, step);
    }
  };
  test::expect_error<ConfigError>(
      [&] { Trainer(options()).fit(std::make_shared<InStepImpl>(), six_batches()); },
      {"a step, or a hook inside a batch", "on_train_batch_end"});
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
