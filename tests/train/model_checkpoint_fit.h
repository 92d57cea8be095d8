// A fit with one ModelCheckpoint, and what it has kept.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/slope.h"

namespace lockstep::testing {

class ModelCheckpointTest : public SlopeTest {
 protected:
  using Names = std::vector<std::string>;

  std::shared_ptr<ModelCheckpoint> fit(TrainerOptions chosen, ModelCheckpointOptions wanted,
                                       std::int64_t train_batches = 4) {
    const auto callback = std::make_shared<ModelCheckpoint>(std::move(wanted));
    chosen.callbacks.push_back(callback);
    Trainer trainer(chosen);
    trainer.fit(model_, batches(train_batches), batches(1));
    EXPECT_EQ(trainer.checkpoint_callback(), callback.get());
    return callback;
  }
  std::filesystem::path checkpoints() const { return run_dir() / "checkpoints"; }
  // Also those in folders within, without last.ckpt.
  Names kept() const { return kept(checkpoints()); }
  static Names kept(const std::filesystem::path& folder) {
    Names names;
    for (auto at = std::filesystem::recursive_directory_iterator(folder); at != end(at); ++at) {
      const auto& path = at->path();
      if (path.extension() != ".ckpt") continue;
      at.disable_recursion_pending();
      if (path.filename() != "last.ckpt") names.push_back(path.lexically_relative(folder).string());
    }
    std::ranges::sort(names);
    return names;
  }
};

}  // namespace lockstep::testing
