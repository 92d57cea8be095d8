// The order of our hooks against Lightning's own, for every hook that we have.
#include <fstream>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/paths.h"
#include "train/recording.h"

namespace lockstep {
namespace {

using nlohmann::json;

// "who hook batch epoch step" of the golden rows whose hooks we have.
std::vector<std::string> golden_rows(const std::string& entry) {
  const auto golden = json::parse(std::ifstream(test::in_repository("tests/train/golden_hooks.json")));
  // Not built yet: batch transfer, loader and callback hooks of the module, checkpoint hooks.
  const std::set<std::string> not_built{"configure_callbacks",
                                        "configure_model",
                                        "val_dataloader",
                                        "train_dataloader",
                                        "test_dataloader",
                                        "optimizer_step",
                                        "backward",
                                        "on_validation_model_zero_grad",
                                        "on_before_batch_transfer",
                                        "transfer_batch_to_device",
                                        "on_after_batch_transfer",
                                        "save",
                                        "state_dict",
                                        "on_save_checkpoint"};
  std::vector<std::string> rows;
  for (const auto& row : golden.at(entry)) {
    const std::string hook = row[1];
    if (not_built.contains(hook)) continue;
    const auto batch = hook.find("_batch_") != std::string::npos || hook.ends_with("ing_step") ||
                               hook.ends_with("ion_step") || hook == "test_step"
                           ? row[2].dump()
                           : std::string("-");
    rows.push_back(row[0].get<std::string>() + " " + hook + " " + batch + " " + row[3].dump() + " " +
                   row[4].dump());
  }
  return rows;
}

TEST(HookOrder, OfFitIsLightnings) {
  testing::Recording recording;
  auto options = recording.trainer_options();
  options.max_epochs = 2;
  options.accumulate_grad_batches = 2;
  options.gradient_clip_val = 1.0;
  Trainer trainer(options);
  trainer.fit(recording.module(), recording.batches(3), recording.batches(2));
  EXPECT_EQ(recording.rows(), golden_rows("fit"));
}

TEST(HookOrder, OfValidateIsLightnings) {
  testing::Recording recording;
  Trainer trainer(recording.trainer_options());
  trainer.validate(recording.module(), recording.batches(2));
  EXPECT_EQ(recording.rows(), golden_rows("validate"));
}

TEST(HookOrder, OfTestIsLightnings) {
  testing::Recording recording;
  Trainer trainer(recording.trainer_options());
  trainer.test(recording.module(), recording.batches(2));
  EXPECT_EQ(recording.rows(), golden_rows("test"));
}

}  // namespace
}  // namespace lockstep
