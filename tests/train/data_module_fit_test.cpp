// What a Trainer asks of a data module beside its loaders.
#include <gmock/gmock.h>

#include "train/slope.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using Rows = std::vector<std::string>;

struct Told final : DataModule<Example> {
  explicit Told(Rows& rows_) : rows(rows_) {}
  std::optional<Loader<Example>> train_dataloader() override {
    return loader(tensor_dataset(torch::ones({4, 1})), {.batch_size = 1});
  }
  void on_exception(const std::exception& error) override {
    rows.push_back(std::string("data ") + error.what());
    if (throws) throw std::runtime_error("another one");
  }
  void teardown(Stage stage) override { rows.push_back("data teardown " + std::string(stage_name(stage))); }
  StateTree state() const override {
    StateTree state;
    state.set("served", served);
    return state;
  }
  void load_state(const StateTree& state) override {
    served = state.get<std::int64_t>("served");
    rows.push_back("data load_state " + std::to_string(served));
  }
  std::optional<Example> transfer_batch_to_device(const Example& batch, StepContext&) override {
    ++served;
    if (!transfers) return std::nullopt;
    return Example{batch.data * 2, batch.target};
  }

  Rows& rows;
  std::int64_t served = 0;
  bool throws = false;
  bool transfers = true;
};

struct TellingImpl final : testing::SlopeImpl {
  explicit TellingImpl(Rows& rows_) : rows(rows_) {}
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    seen.push_back(batch.data.item<float>());
    if (fails) throw std::runtime_error("scripted");
    return SlopeImpl::training_step(batch, step);
  }
  std::optional<Example> transfer_batch_to_device(const Example& batch, StepContext&) override {
    return Example{batch.data * 10, batch.target};
  }
  void on_train_batch_start(StepContext& step) override {
    if (step.batch_idx() == 0) rows.push_back("batch");
  }
  void teardown(TrainContext&) override { rows.push_back("module teardown"); }

  Rows& rows;
  std::vector<float> seen;
  bool fails = false;
};
TORCH_MODULE(Telling);

struct TellingCallback final : Callback {
  explicit TellingCallback(Rows& rows_) : rows(rows_) {}
  void on_exception(TrainContext&, const std::exception& error) override {
    rows.push_back(std::string("callback ") + error.what());
  }
  void teardown(TrainContext&) override { rows.push_back("callback teardown"); }
  Rows& rows;
};

class DataModuleInFit : public testing::SlopeTest {
 protected:
  TrainerOptions telling() {
    auto chosen = options();
    chosen.callbacks = {std::make_shared<TellingCallback>(rows_)};
    return chosen;
  }

  Rows rows_;
  std::shared_ptr<Told> data_ = std::make_shared<Told>(rows_);
  Telling told_{rows_};
};

TEST_F(DataModuleInFit, IsTornDownBeforeCallbacksAndModule) {
  Trainer(telling()).fit(told_, data_);
  EXPECT_THAT(rows_, ElementsAre("batch", "data teardown fit", "callback teardown", "module teardown"));
}

TEST_F(DataModuleInFit, HearsOfAFailureOnceAndCannotHideIt) {
  told_->fails = true;
  for (const bool throws : {false, true}) {
    rows_.clear();
    data_->throws = throws;
    try {
      Trainer(telling()).fit(told_, data_);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "scripted");
    }
    EXPECT_THAT(rows_, ElementsAre("batch", "callback scripted", "data scripted"));
  }
}

TEST_F(DataModuleInFit, GoesOnFromItsState) {
  auto chosen = telling();
  chosen.max_steps = 2;
  Trainer(chosen).fit(told_, data_);
  rows_.clear();
  const auto fresh = std::make_shared<Told>(rows_);
  chosen.max_steps = 4;
  Telling again(rows_);
  Trainer(chosen).fit(again, fresh, run_dir() / "checkpoints" / "last.ckpt");
  EXPECT_EQ(rows_.front(), "data load_state 2");
  EXPECT_EQ(fresh->served, 4);
  EXPECT_EQ(again->seen.size(), 2U);
}

TEST_F(DataModuleInFit, ItsTransferGoesBeforeTheModules) {
  auto chosen = telling();
  chosen.max_steps = 1;
  Trainer(chosen).fit(told_, data_);
  data_->transfers = false;
  Trainer(chosen).fit(told_, data_);
  EXPECT_THAT(told_->seen, ElementsAre(2, 10));
}

}  // namespace
}  // namespace lockstep
