// The order of our hooks against Lightning's own, for every hook that we have.
#include <algorithm>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "support/paths.h"
#include "train/recording.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::ElementsAreArray;

// "who hook batch epoch step" of the golden rows whose hooks we have.
std::vector<std::string> golden_rows(const std::string& entry) {
  const auto golden = json::parse(std::ifstream(test::in_repository("tests/train/golden_hooks.json")));
  // Loaders come from data modules; the optimizer's step and backward are the strategy's. What is one hook
  // of ours, a callback's state, is two of Lightning's.
  const std::set<std::string> not_hooks{"val_dataloader",
                                        "train_dataloader",
                                        "test_dataloader",
                                        "predict_dataloader",
                                        "optimizer_step",
                                        "backward",
                                        "save",
                                        "state_dict"};
  std::vector<std::string> rows;
  for (const auto& row : golden.at(entry)) {
    const std::string hook = row[1];
    if (not_hooks.contains(hook)) continue;
    if (hook.ends_with("_checkpoint")) {
      rows.push_back(row[0].get<std::string>() + " " + hook);
      continue;
    }
    const auto batch = (hook.find("_batch_") != std::string::npos && !hook.ends_with("_transfer") &&
                        !hook.ends_with("_device")) ||
                               hook.ends_with("ing_step") || hook.ends_with("ion_step") ||
                               hook == "test_step" || hook == "predict_step"
                           ? row[2].dump()
                           : std::string("-");
    rows.push_back(row[0].get<std::string>() + " " + hook + " " + batch + " " + row[3].dump() + " " +
                   row[4].dump());
  }
  return rows;
}

// Without the state that is asked for once more as training ends, for last.ckpt, which Lightning does not
// write.
std::vector<std::string> before_last_checkpoint(std::vector<std::string> rows) {
  const auto is_save = [](const auto& row) { return row.ends_with("on_save_checkpoint"); };
  const auto end =
      std::ranges::find_if(rows, [](const auto& row) { return row.starts_with("callback on_train_end"); });
  const auto last = end - rows.begin() < 2 ? end : end - 2;
  rows.erase(std::remove_if(last, rows.end(), is_save), rows.end());
  return rows;
}

// Without those of loading, which ours calls once the optimizer is there, and before on_fit_start, which then
// knows the epoch and the step.
std::vector<std::string> without_loading(std::vector<std::string> rows) {
  std::erase_if(rows, [](const auto& row) { return row.ends_with("on_load_checkpoint"); });
  for (auto& row : rows)
    if (row.find(" on_fit_start ") != std::string::npos) row.resize(row.find(" on_fit_start ") + 13);
  return rows;
}

TrainerOptions fit_options(testing::Recording& recording) {
  auto options = recording.trainer_options();
  options.max_epochs = 2;
  options.accumulate_grad_batches = 2;
  options.gradient_clip_val = 1.0;
  return options;
}

TEST(HookOrder, OfFitIsLightnings) {
  testing::Recording recording;
  Trainer trainer(fit_options(recording));
  trainer.fit(recording.module(), recording.batches(3), recording.batches(2));
  EXPECT_THAT(before_last_checkpoint(recording.rows()), ElementsAreArray(golden_rows("fit")));
}

TEST(HookOrder, OfAResumedFitIsLightnings) {
  testing::Recording recording;
  Trainer(fit_options(recording)).fit(recording.module(), recording.batches(3), recording.batches(2));
  recording.clear();
  auto options = recording.trainer_options();
  options.max_epochs = 3;
  Trainer(options).fit(recording.module(), recording.batches(3), recording.batches(2),
                       recording.folder() / "run" / "checkpoints" / "last.ckpt");
  const auto rows = before_last_checkpoint(recording.rows());
  EXPECT_THAT(without_loading(rows), ElementsAreArray(without_loading(golden_rows("resume"))));
  const auto module = std::ranges::find(rows, "module on_load_checkpoint");
  ASSERT_NE(module, rows.end());
  EXPECT_EQ(*std::next(module), "callback on_load_checkpoint");
}

TEST(HookOrder, OfManualOptimisationIsLightnings) {
  testing::Recording recording;
  auto options = recording.trainer_options();
  options.max_epochs = 2;
  options.num_sanity_val_steps = 1;
  options.enable_checkpointing = false;
  auto module = recording.module();
  module->is_manual = true;
  Trainer(options).fit(module, recording.batches(2), recording.batches(1));
  EXPECT_THAT(before_last_checkpoint(recording.rows()), ElementsAreArray(golden_rows("fit_manual")));
}

TEST(HookOrder, OfAFitThatGoesOnInAnEpochIsLightnings) {
  testing::Recording recording;
  auto options = recording.trainer_options();
  options.max_steps = 1;
  Trainer(options).fit(recording.module(), recording.batches(3));
  recording.clear();
  options.max_steps = 5;
  options.enable_checkpointing = false;
  Trainer(options).fit(recording.module(), recording.batches(3), {},
                       recording.folder() / "run" / "checkpoints" / "last.ckpt");
  // Ours asks for the state where max_steps cuts the epoch, too: last.ckpt goes on from there.
  auto rows = without_loading(recording.rows());
  std::erase_if(rows, [](const auto& row) { return row.ends_with("on_save_checkpoint"); });
  EXPECT_THAT(rows, ElementsAreArray(without_loading(golden_rows("resume_max_steps"))));
}

TEST(HookOrder, OfAFailureIsLightnings) {
  testing::Recording recording;
  auto module = recording.module();
  module->fails_at = 1;
  EXPECT_THROW(Trainer(fit_options(recording)).fit(module, recording.batches(3), recording.batches(2)),
               std::runtime_error);
  EXPECT_THAT(recording.rows(), ElementsAreArray(golden_rows("fit_exception_at_batch_1")));
}

TEST(HookOrder, OfValidateIsLightnings) {
  testing::Recording recording;
  Trainer trainer(recording.trainer_options());
  trainer.validate(recording.module(), recording.batches(2));
  EXPECT_THAT(recording.rows(), ElementsAreArray(golden_rows("validate")));
}

TEST(HookOrder, OfTestIsLightnings) {
  testing::Recording recording;
  Trainer trainer(recording.trainer_options());
  trainer.test(recording.module(), recording.batches(2));
  EXPECT_THAT(recording.rows(), ElementsAreArray(golden_rows("test")));
}

TEST(HookOrder, OfPredictIsLightnings) {
  testing::Recording recording;
  Trainer trainer(recording.trainer_options());
  trainer.predict(recording.module(), recording.batches(2));
  EXPECT_THAT(recording.rows(), ElementsAreArray(golden_rows("predict")));
}

}  // namespace
}  // namespace lockstep
