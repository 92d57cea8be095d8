// Callbacks that files name: each class of the table, and what a Trainer does with them.
#include <gmock/gmock.h>
#include <lockstep/lockstep.h>

#include <algorithm>
#include <any>
#include <fstream>
#include <map>

#include "support/expect_error.h"
#include "support/paths.h"
#include "train/slope.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::SlopeTest;
using Words = std::vector<std::string>;

// Options that say something for each class: names and values as Lightning has them.
const std::map<std::string, std::string> kInitArgs{
    {"ModelCheckpoint",
     "dirpath: d, filename: '{epoch}', monitor: x, verbose: true, save_last: link, save_top_k: 3, mode: max, "
     "auto_insert_metric_name: false, train_time_interval: {minutes: 30}, save_on_train_epoch_end: true, "
     "save_on_exception: true, enable_version_counter: false, save_weights_only: true"},
    {"EarlyStopping",
     "monitor: x, min_delta: 0.1, patience: 7, verbose: true, mode: max, strict: false, check_finite: false, "
     "stopping_threshold: 0.5, divergence_threshold: 9, check_on_train_epoch_end: false, log_rank_zero_only: "
     "false"},
    {"LearningRateMonitor",
     "logging_interval: step, log_momentum: true, log_weight_decay: true, log_key_prefix: p"},
    {"Timer", "duration: '00:12:00:00', interval: epoch, verbose: false"},
    {"ModelSummary", "max_depth: -1"},
    {"GradientAccumulationScheduler", "scheduling: {0: 1, 4: 2}"},
    {"WeightAveraging", "device: null, use_buffers: false"},
    {"EMAWeightAveraging",
     "device: cpu, use_buffers: false, decay: 0.9, update_every_n_steps: 2, update_starting_at_step: 3, "
     "update_starting_at_epoch: 4"},
    {"StochasticWeightAveraging",
     "swa_lrs: 0.05, swa_epoch_start: 3, annealing_epochs: 2, annealing_strategy: linear, avg_fn: null"},
    {"BackboneFinetuning",
     "unfreeze_backbone_at_epoch: 2, lambda_func: null, backbone_initial_ratio_lr: 0.2, backbone_initial_lr: "
     "0.3, "
     "should_align: false, initial_denom_lr: 10.0, train_bn: false, verbose: true, rounding: 3"},
    {"ModelPruning",
     "pruning_fn: ln_structured, parameters_to_prune: [net.0.weight], parameter_names: [weight], "
     "use_global_unstructured: false, amount: 2, apply_pruning: false, make_pruning_permanent: false, "
     "use_lottery_ticket_hypothesis: false, resample_parameters: true, pruning_dim: 1, pruning_norm: 2, "
     "verbose: 2, "
     "prune_on_train_epoch_end: false"},
    {"DeviceStatsMonitor", "cpu_stats: true"},
    {"ThroughputMonitor", "batch_size_fn: null, available_flops: 1e12, window_size: 5, separator: '.'"},
    {"SpikeDetection",
     "mode: max, window: 3, warmup: 2, atol: 0.5, rtol: null, exclude_batches_path: f.json, finite_only: "
     "false"},
    {"PredictionWriter", "dirpath: d, write_interval: batch_and_epoch"},
    {"LocalCheckpoint", "every_n_train_steps: 5, folder: f, replication_factor: 1"},
    {"OnExceptionCheckpoint", "dirpath: d, filename: f, deadline: 2s"},
    {"TQDMProgressBar", "refresh_rate: 10, process_position: 0, leave: true"},
    {"RichProgressBar", "refresh_rate: 10, leave: true, theme: null, console_kwargs: null"},
    {"BatchSizeFinder",
     "mode: binsearch, steps_per_trial: 1, init_val: 4, max_trials: 5, batch_arg_name: batch_size, margin: "
     "0.1, "
     "max_val: 64"},
    {"LearningRateFinder",
     "min_lr: 1e-6, max_lr: 0.5, num_training_steps: 30, mode: linear, early_stop_threshold: null, "
     "update_attr: false, attr_name: ''"}};

TrainerOptions given(const std::string& callbacks) {
  TrainerOptions options;
  OptionTree tree;
  tree.add("trainer", options);
  tree.apply(read_yaml("trainer:\n  callbacks: " + callbacks, "c.yaml"));
  return options;
}

std::string printed(TrainerOptions options) {
  OptionTree tree;
  tree.add("trainer", options);
  return tree.to_yaml();
}

std::string object(const std::string& name, const std::string& init_args) {
  return "[{class_path: lightning.pytorch.callbacks." + name + ", init_args: {" + init_args + "}}]";
}

// Visits the options of one class, and counts them.
struct OptionCount final : OptionVisitor {
  void visit_field(OptionField& field) override { defaults[field.name()] = field.print(); }
  void visit_group(std::string_view, std::string_view, const Members& members) override { members(*this); }
  void visit_choice(OptionChoice&) override {}
  std::map<std::string, std::string> defaults;
};

std::map<std::string, std::string> options_in(const ObjectClass& one, std::any options) {
  OptionCount count;
  one.describe(count, options);
  return count.defaults;
}

TEST(NamedCallbacks, EachClassIsReadPrintedAndMade) {
  Words names;
  for (const auto& one : callback_classes()) {
    if (!one.unavailable.empty() || one.name == "own.Pace") continue;
    SCOPED_TRACE(one.name);
    names.push_back(one.name);
    ASSERT_TRUE(kInitArgs.contains(one.name));
    const auto options = given(object(one.name, kInitArgs.at(one.name)));
    ASSERT_EQ(options.named_callbacks.size(), 1U);
    EXPECT_EQ(options.named_callbacks[0].class_name, one.name);
    for (const auto& [name, value] : options_in(one, options.named_callbacks[0].options)) {
      const bool excludes_another = one.name == "ModelCheckpoint" && name.starts_with("every_n_");
      if (excludes_another) continue;
      EXPECT_NE(value, options_in(one, one.options)[name]) << name << " is not given";
    }
    const auto yaml = printed(options);
    TrainerOptions again;
    OptionTree tree;
    tree.add("trainer", again);
    tree.apply(read_yaml(yaml, "printed.yaml"));
    EXPECT_EQ(printed(again), yaml);
    const auto made = make_callbacks(options.named_callbacks);
    ASSERT_EQ(made.size(), 1U);
    EXPECT_NE(made[0], nullptr);
    EXPECT_NE(made[0], make_callbacks(options.named_callbacks)[0]);
  }
  EXPECT_EQ(names.size(), kInitArgs.size());
}

// The row of `name` in the table of a page.
std::string row_of(const std::string& name) {
  std::ifstream page(test::in_repository("docs/callbacks.md"));
  bool is_in_section = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) is_in_section = line == "## In files and flags";
    if (is_in_section && line.starts_with("| `") &&
        line.substr(0, line.find('|', 1)).find("`" + name + "`") != line.npos)
      return line;
  }
  return {};
}

TEST(NamedCallbacks, ThePageHasEachOption) {
  for (const auto& one : callback_classes()) {
    if (!one.unavailable.empty() || one.name == "own.Pace") continue;
    auto row = row_of(one.name);
    const auto names = options_in(one, one.options);
    for (const auto& [name, value] : names)
      EXPECT_NE(row.find("`" + name + "`"), row.npos) << name << " of " << one.name;
    const auto cell = row.substr(row.find('|', 1));
    EXPECT_EQ(std::ranges::count(cell, '`'), 2 * std::ssize(names)) << row;
  }
}

template <class Kind>
std::shared_ptr<Kind> made_of(const std::string& callbacks) {
  return std::dynamic_pointer_cast<Kind>(make_callbacks(given(callbacks).named_callbacks).at(0));
}

TEST(NamedCallbacks, OptionsReachTheObjects) {
  EXPECT_NE(made_of<EarlyStopping>("{class_path: ls::EarlyStopping, init_args: {monitor: x}}"), nullptr);
  EXPECT_EQ(made_of<RichProgressBar>(object("RichProgressBar", "refresh_rate: 20"))->options().refresh_rate,
            20);
  const auto schedule =
      made_of<GradientAccumulationScheduler>(object("GradientAccumulationScheduler", "scheduling: {2: 3}"));
  EXPECT_EQ(schedule->schedule(), AccumulationSchedule({{2, 3}}));
  EXPECT_EQ(made_of<Timer>(object("Timer", "duration: {hours: 2}"))->time_remaining(), std::chrono::hours(2));
}

TEST(NamedCallbacks, WrongOptionsAreNamed) {
  const std::vector<std::pair<std::string, Words>> cases{
      {"{_target_: lightning.pytorch.callbacks.Timer, duration: 1h}",
       {"trainer.callbacks; expected a list of classes", "a map with key _target_", "c.yaml:2:15", "Hydra's",
        "class_path"}},
      {"{stop: {_target_: EarlyStopping, monitor: x}}", {"a map with key stop", "c.yaml:2:22", "Hydra's"}},
      {"{stop: {class_path: Timer}}", {"a map with key stop", "c.yaml:2:15", "begin each class with a dash"}},
      {"{EarlyStopping: {monitor: x}}", {"a map with key EarlyStopping", "begin each class with a dash"}},
      {"[{_target_: Timer, duration: 1h}]", {"trainer.callbacks[0]", "an entry _target_", "Hydra's"}},
      {"[LambdaCallback]",
       {"names LambdaCallback, which is not available; at c.yaml:2:15", "program's code"}},
      {"[BasePredictionWriter]", {"not available", "PredictionWriter"}},
      {"[my.module.Pace]",
       {"trainer.callbacks[0] names an unknown class", "c.yaml:2:15", "register_callback"}},
      {"[Timer, EarlyStoping]", {"trainer.callbacks[1]", "did you mean EarlyStopping?", "c.yaml:2:22"}},
      {"[EarlyStopping]", {"trainer.callbacks[0]: EarlyStopping: monitor", "got nothing", "c.yaml:2:15"}},
      {"[{class_path: EarlyStopping, init_args: {monitor: x, patience: -1}}]",
       {"trainer.callbacks[0].init_args.patience", ">= 0", "-1", "c.yaml:2:77"}},
      {"[{class_path: EarlyStopping, init_args: {monitr: x}}]",
       {"trainer.callbacks[0].init_args.monitr", "did you mean trainer.callbacks[0].init_args.monitor?"}},
      {"[{class_path: ModelCheckpoint, init_args: {save_top_k: 3}}]", {"save_top_k without monitor"}},
      {"[GradientAccumulationScheduler]", {"scheduling", "nothing"}},
      {"[{class_path: ModelPruning, init_args: {pruning_fn: l2}}]",
       {"l1_unstructured", "init_args.pruning_fn"}},
      {"[{class_path: BackboneFinetuning, init_args: {lambda_func: my.f}}]",
       {"lambda_func", "it is a function"}},
      {"[{class_path: RichProgressBar, init_args: {theme: {class_path: T}}}]",
       {"init_args.theme", "colours"}}};
  for (const auto& [callbacks, words] : cases)
    test::expect_error<ConfigError>([&] { given(callbacks); }, words);
}

// Waits at every start of a batch, or so it says.
struct PaceOptions {
  int beats = 1;
};
void describe(OptionVisitor& v, PaceOptions& o) { v.field("beats", o.beats, "How many", at_least(1)); }
struct Pace final : Callback {
  explicit Pace(PaceOptions options_) : options(options_) {}
  PaceOptions options;
};

TEST(NamedCallbacks, AProgramMayRegisterItsOwn) {
  register_callback<Pace, PaceOptions>("own.Pace");
  EXPECT_EQ(made_of<Pace>("[{class_path: own.Pace, init_args: {beats: 3}}]")->options.beats, 3);
  test::expect_error<ConfigError>([] { given("[{class_path: own.Pace, init_args: {beats: 0}}]"); },
                                  {"init_args.beats", ">= 1"});
  for (const auto* typo : {"own.Pase", "own.Pac", "other.Pace", "own::Pace", "Pce"})
    test::expect_error<ConfigError>([&] { given(std::string("[") + typo + "]"); },
                                    {"unknown class", "did you mean own.Pace?"});
}

// Programs register before anything could catch an error.
TEST(NamedCallbacks, AWrongRegistrationIsRefusedByTheNextRun) {
  const std::vector<std::pair<std::string, Words>> cases{
      {"Timer", {"register_callback", "a name that no other callback has", "Timer"}},
      {"", {"register_callback", "a word that can stand in a file"}},
      {"own, Pace", {"register_callback", "a word that can stand in a file", "own, Pace"}}};
  for (const auto& [name, words] : cases) {
    EXPECT_NO_THROW((register_callback<Pace, PaceOptions>(name)));
    test::expect_error<ConfigError>([] { Trainer trainer(TrainerOptions{}); }, words);
    EXPECT_NO_THROW(callback_classes());
  }
}

TEST(NamedCallbacks, UnknownNamesOfCodeAreRefused) {
  const std::vector<NamedObject> named{{"Tmer", TimerOptions{}}};
  test::expect_error<ConfigError>([&] { make_callbacks(named); }, {"named_callbacks", "did you mean Timer?"});
}

class NamedCallbackRuns : public SlopeTest {
 protected:
  TrainerOptions with(const std::string& callbacks, std::int64_t epochs = 1) {
    auto chosen = options(epochs);
    chosen.named_callbacks = given(callbacks).named_callbacks;
    return chosen;
  }
};

struct Witness final : Callback {
  void on_fit_start(TrainContext& context) override {
    for (const auto& callback : context.callbacks()) keys.push_back(callback->state_key());
    callbacks.assign(context.callbacks().begin(), context.callbacks().end());
  }
  Words keys;
  std::vector<std::shared_ptr<Callback>> callbacks;
};

TEST_F(NamedCallbackRuns, AreBehindThoseOfTheCode) {
  auto chosen = with("[Timer, {class_path: EarlyStopping, init_args: {monitor: train_loss}}]");
  chosen.enable_progress_bar = chosen.enable_model_summary = chosen.enable_checkpointing = false;
  const auto witness = std::make_shared<Witness>();
  chosen.callbacks = {
      witness, std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "train_loss", .mode = "max"})};
  Trainer(chosen).fit(model_, batches(3));
  ASSERT_EQ(witness->keys.size(), 4U);
  EXPECT_THAT(witness->keys[1], ::testing::HasSubstr("'mode': 'max'"));
  EXPECT_EQ(witness->keys[2], "lockstep::Timer");
  EXPECT_THAT(witness->keys[3], ::testing::HasSubstr("'mode': 'min'"));
}

TEST_F(NamedCallbackRuns, AModelCheckpointIsTheOneThatSaves) {
  Trainer trainer(with(object("ModelCheckpoint", "filename: named"), 2));
  trainer.fit(model_, batches(3));
  EXPECT_EQ(trainer.checkpoint_callback()->best_model_path().filename(), "named.ckpt");
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints" / "named.ckpt"));
  auto without = with("[ModelCheckpoint]");
  without.enable_checkpointing = false;
  test::expect_error<ConfigError>([&] { Trainer{without}; },
                                  {"enable_checkpointing = false", "ModelCheckpoint"});
}

TEST_F(NamedCallbackRuns, EachTrainerHasItsOwn) {
  auto chosen = with(object("Timer", "duration: 1h"));
  std::vector<std::shared_ptr<Callback>> timers;
  for (int i = 0; i < 2; ++i) {
    const auto witness = std::make_shared<Witness>();
    chosen.callbacks = {witness};
    Trainer(chosen).fit(model_, batches(3));
    ASSERT_GE(witness->callbacks.size(), 2U);
    timers.push_back(witness->callbacks[1]);
  }
  EXPECT_NE(dynamic_cast<Timer*>(timers[0].get()), nullptr);
  EXPECT_NE(timers[0], timers[1]);
}

TEST_F(NamedCallbackRuns, BarebonesLeavesThemOutAsThoseOfTheCode) {
  auto chosen = with("[LearningRateMonitor, ModelCheckpoint, Timer]");
  chosen.barebones = true;
  const auto witness = std::make_shared<Witness>();
  chosen.callbacks = {witness};
  Trainer(chosen).fit(model_, batches(3));
  EXPECT_THAT(witness->keys, ::testing::Contains("lockstep::Timer"));
  EXPECT_THAT(witness->keys, ::testing::Not(::testing::Contains(::testing::HasSubstr("ModelCheckpoint"))));
  EXPECT_THAT(witness->keys, ::testing::Not(::testing::Contains("lockstep::LearningRateMonitor")));
}

TEST_F(NamedCallbackRuns, AnOwnTunerIsRefusedBesideAFinder) {
  Trainer trainer(with("[LearningRateFinder]"));
  Tuner tuner(trainer);
  test::expect_error<ConfigError>([&] { tuner.lr_find(model_, batches(3)); }, {"LearningRateFinder"});
}

TEST_F(NamedCallbackRuns, AFitStopsWhereOneSaysSo) {
  Trainer trainer(
      with(object("EarlyStopping", "monitor: train_loss, patience: 0, divergence_threshold: -100"), 9));
  trainer.fit(model_, batches(3));
  EXPECT_EQ(trainer.current_epoch(), 1);
}

}  // namespace
}  // namespace lockstep
