// The files that LightningCLI writes are read: their null is the default, and what names no objects is no
// error.
#include <gtest/gtest.h>
#include <lockstep/base/options.h>
#include <lockstep/lockstep.h>

#include "cli/run.h"
#include "support/expect_error.h"

namespace lockstep {
namespace {

// `trainer:` as LightningCLI 2.6 prints it with --print_config, and its seed_everything.
constexpr auto kPrinted = R"(
seed_everything: true
trainer:
  accelerator: auto
  strategy: auto
  devices: auto
  num_nodes: 1
  precision: null
  logger: null
  callbacks: null
  fast_dev_run: false
  max_epochs: 3
  min_epochs: null
  max_steps: -1
  min_steps: null
  max_time: null
  limit_train_batches: null
  limit_val_batches: null
  limit_test_batches: null
  limit_predict_batches: null
  overfit_batches: 0.0
  val_check_interval: null
  check_val_every_n_epoch: 1
  num_sanity_val_steps: null
  log_every_n_steps: null
  enable_checkpointing: null
  enable_progress_bar: null
  enable_model_summary: null
  accumulate_grad_batches: 1
  gradient_clip_val: null
  gradient_clip_algorithm: null
  deterministic: null
  benchmark: null
  inference_mode: true
  use_distributed_sampler: true
  profiler: null
  detect_anomaly: false
  barebones: false
  plugins: null
  sync_batchnorm: false
  reload_dataloaders_every_n_epochs: 0
  default_root_dir: null
)";

struct Given {
  TrainerOptions trainer;
  RunOptions run;
};

Given read(std::string_view yaml) {
  Given given;
  OptionTree tree;
  tree.add("", given.run);
  tree.add("trainer", given.trainer);
  auto assignments = read_yaml(yaml, "config.yaml");
  detail::take_lightning_keys(assignments);
  tree.apply(assignments);
  return given;
}

std::string printed(TrainerOptions options) {
  OptionTree tree;
  tree.add("trainer", options);
  return tree.to_yaml();
}

TEST(LightningKeys, PrintedConfigurationsAreRead) {
  const auto given = read(kPrinted);
  EXPECT_EQ(given.run.seed_everything, 0U);
  TrainerOptions expected{.max_epochs = 3};
  expected.overfit_batches = given.trainer.overfit_batches;  // 0.0, which is 0 in another type
  EXPECT_EQ(printed(given.trainer), printed(expected));
}

// But for the one whose null says something: validations are counted across epochs.
TEST(LightningKeys, NullIsTheDefaultOfEveryKeyOfTheTrainer) {
  TrainerOptions defaults;
  OptionTree tree;
  tree.add("trainer", defaults);
  int count = 0;
  for (const auto& option : tree.list()) {
    const auto& key = option.key;
    const bool is_of_choice = !option.choice.empty();  // of what the default of another key has not chosen
    if (is_of_choice || key == "trainer.check_val_every_n_epoch") continue;  // whose null has a meaning
    for (const char* null : {"null", "~", ""})
      EXPECT_EQ(printed(read(key + ": " + null).trainer), printed(defaults)) << key << ' ' << null;
    ++count;
  }
  EXPECT_GT(count, 40);
  EXPECT_EQ(read("trainer: {max_steps: null}").trainer.max_steps, -1);
  EXPECT_EQ(read("trainer: null").trainer.max_steps, -1);
}

TEST(LightningKeys, LoggersMayBeAList) {
  const auto loggers = [](const std::string& value) {
    return read("trainer: {logger: " + value + "}").trainer.logger;
  };
  EXPECT_EQ(loggers("[csv, 'jsonl']").print(), "csv,jsonl");
  EXPECT_EQ(loggers("[tensorboard]").print(), "tensorboard");
  EXPECT_TRUE(loggers("[]").empty());
  test::expect_error<ConfigError>([&] { loggers("[csv, wandb]"); },
                                  {"trainer.logger", "tensorboard", "wandb"});
}

TEST(LightningKeys, ListsAreNamedAsTheyWereGiven) {
  for (const char* list : {"[0, x]", "[0,x]"})
    test::expect_error<ConfigError>([&] { read("trainer: {devices: " + std::string(list) + "}"); },
                                    {"trainer.devices", "got [0, x]"});
  test::expect_error<ConfigError>([] { read("trainer: {devices: '[0,x]'}"); }, {"got \"[0,x]\""});
}

TEST(LightningKeys, SeedsAreChosenByTrueAndNoneByFalse) {
  EXPECT_EQ(read("seed_everything: 7").run.seed_everything, 7U);
  EXPECT_EQ(read("seed_everything: 1").run.seed_everything, 1U);
  EXPECT_EQ(read("seed_everything: false").run.seed_everything, std::nullopt);
  EXPECT_EQ(read("seed_everything: null").run.seed_everything, std::nullopt);
}

TEST(LightningKeys, NothingIsNoError) {
  for (const char* nothing : {"null", "[]", "", "{}"}) {
    EXPECT_TRUE(read("trainer: {callbacks: " + std::string(nothing) + "}").trainer.named_callbacks.empty());
    EXPECT_NO_THROW(read("trainer: {plugins: " + std::string(nothing) + "}")) << nothing;
  }
}

// As LightningCLI 2.6 saves them: with all defaults, and the whole path of the class.
TEST(LightningKeys, CallbacksAreNamedWithTheirOptions) {
  const auto given = read(R"(
trainer:
  callbacks:
  - class_path: lightning.pytorch.callbacks.EarlyStopping
    init_args:
      monitor: val_loss
      min_delta: 0.0
      patience: 5
      verbose: false
      mode: min
      strict: true
      check_finite: true
      stopping_threshold: null
      divergence_threshold: null
      check_on_train_epoch_end: null
      log_rank_zero_only: false
  - class_path: lightning.pytorch.callbacks.ModelCheckpoint
    init_args:
      dirpath: null
      filename: null
      monitor: val_loss
      verbose: false
      save_last: null
      save_top_k: 2
      save_on_exception: false
      save_weights_only: false
      mode: min
      auto_insert_metric_name: true
      every_n_train_steps: null
      train_time_interval: 0:30:00
      every_n_epochs: null
      save_on_train_epoch_end: null
      enable_version_counter: true
  - LearningRateMonitor
)");
  const auto& named = given.trainer.named_callbacks;
  ASSERT_EQ(named.size(), 3U);
  EXPECT_EQ(std::any_cast<EarlyStoppingOptions>(named[0].options).patience, 5);
  EXPECT_EQ(std::any_cast<ModelCheckpointOptions>(named[1].options).train_time_interval,
            std::chrono::minutes(30));
  EXPECT_EQ(named[2].class_name, "LearningRateMonitor");
}

TEST(LightningKeys, PluginsAreGivenInTheProgram) {
  for (const char* objects : {"[MPIEnvironment]", "MPIEnvironment", "[{class_path: MPIEnvironment}]"})
    test::expect_error<ConfigError>([&] { read("trainer:\n  plugins: " + std::string(objects)); },
                                    {"trainer.plugins", "config.yaml:2:", "in the program"});
  test::expect_error<ConfigError>([] { read("trainer: {logger: [{class_path: CSVLogger}]}"); },
                                  {"trainer.logger", "csv, jsonl"});
}

TEST(LightningKeys, NoRegistryOfModelsIsAskedFor) {
  EXPECT_NO_THROW(read("trainer: {model_registry: null}"));
  test::expect_error<ConfigError>([] { read("trainer: {model_registry: best}"); },
                                  {"trainer.model_registry", "config.yaml:1:", "leave it out"});
}

TEST(LightningKeys, FormerOptionsNameWhatHasTakenTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> former{
      {"gpus", "trainer.devices"},
      {"resume_from_checkpoint", "--ckpt_path"},
      {"amp_level", "trainer.precision"},
      {"weights_summary", "trainer.enable_model_summary"},
      {"auto_lr_find", "docs/tuner.md"}};
  for (const auto& [key, instead] : former)
    test::expect_error<ConfigError>([&] { read("trainer: {" + key + ": 1}"); },
                                    {"unknown key trainer." + key, instead});
}

TEST(LightningKeys, WholeNumbersOverOneAreNumbersOfBatches) {
  EXPECT_EQ(read("trainer: {limit_train_batches: 10.0}").trainer.limit_train_batches.print(), "10");
  EXPECT_EQ(read("trainer: {limit_train_batches: 1.0}").trainer.limit_train_batches.print(), "1.0");
  test::expect_error<ConfigError>([] { read("trainer: {limit_train_batches: 1.5}"); },
                                  {"limit_train_batches"});
}

}  // namespace
}  // namespace lockstep
