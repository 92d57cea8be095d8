// LambdaCallback's hooks, the state of callbacks of one class, and who is told of a failure.
#include <algorithm>

#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using Names = std::vector<std::string>;

class CallbackHooks : public testing::SlopeTest {
 protected:
  LambdaHooks::Epoch note(const std::string& name) {
    return [this, name](TrainContext&) { called_.push_back(name); };
  }
  LambdaHooks::Batch note_batch(const std::string& name) {
    return [this, name](StepContext&) { called_.push_back(name); };
  }
  TrainerOptions with(std::vector<std::shared_ptr<Callback>> callbacks) {
    auto chosen = options();
    chosen.callbacks = std::move(callbacks);
    return chosen;
  }
  Names called_;
};

#define LOCKSTEP_NOTE(hook) .hook = note(#hook)
#define LOCKSTEP_NOTE_BATCH(hook) .hook = note_batch(#hook)

TEST_F(CallbackHooks, FunctionsForPredict) {
  const LambdaHooks hooks{LOCKSTEP_NOTE(on_predict_start),
                          LOCKSTEP_NOTE(on_predict_end),
                          LOCKSTEP_NOTE(on_predict_epoch_start),
                          LOCKSTEP_NOTE(on_predict_epoch_end),
                          LOCKSTEP_NOTE_BATCH(on_predict_batch_start),
                          .on_predict_batch_end = [this](StepContext&, const at::Tensor& prediction) {
                            called_.push_back("prediction " + std::to_string(prediction.item<int>()));
                          }};
  Trainer(with({std::make_shared<LambdaCallback>(hooks)})).predict(model_, batches(1));
  EXPECT_THAT(called_, ElementsAre("on_predict_start", "on_predict_epoch_start", "on_predict_batch_start",
                                   "prediction 2", "on_predict_epoch_end", "on_predict_end"));
}

TEST_F(CallbackHooks, FunctionsForTheSanityCheckAndItsBatches) {
  const LambdaHooks hooks{LOCKSTEP_NOTE(on_sanity_check_start),
                          LOCKSTEP_NOTE(on_sanity_check_end),
                          LOCKSTEP_NOTE(on_train_start),
                          LOCKSTEP_NOTE(on_validation_epoch_start),
                          LOCKSTEP_NOTE_BATCH(on_validation_batch_start),
                          LOCKSTEP_NOTE_BATCH(on_validation_batch_end)};
  auto chosen = with({std::make_shared<LambdaCallback>(hooks)});
  chosen.num_sanity_val_steps = 1;
  Trainer(chosen).fit(model_, batches(1), batches(1));
  const Names validation{"on_validation_epoch_start", "on_validation_batch_start", "on_validation_batch_end"};
  Names expected{"on_sanity_check_start"};
  expected.insert(expected.end(), validation.begin(), validation.end());
  expected.insert(expected.end(), {"on_sanity_check_end", "on_train_start"});
  expected.insert(expected.end(), validation.begin(), validation.end());
  EXPECT_EQ(called_, expected);
}

TEST_F(CallbackHooks, FunctionsForTest) {
  const LambdaHooks hooks{LOCKSTEP_NOTE(on_test_epoch_start), LOCKSTEP_NOTE_BATCH(on_test_batch_start),
                          LOCKSTEP_NOTE_BATCH(on_test_batch_end)};
  Trainer(with({std::make_shared<LambdaCallback>(hooks)})).test(model_, batches(1));
  EXPECT_THAT(called_, ElementsAre("on_test_epoch_start", "on_test_batch_start", "on_test_batch_end"));
}

// A callback that has a number to remember.
std::shared_ptr<Callback> keeper(double& number, std::string key = {}) {
  return std::make_shared<LambdaCallback>(
      LambdaHooks{.state =
                      [&number] {
                        StateTree state;
                        state.set("number", number);
                        return state;
                      },
                  .load_state = [&number](const StateTree& state) { number = state.get<double>("number"); },
                  .state_key = std::move(key)});
}

TEST_F(CallbackHooks, StateOfOneClassIsToldApartByOrder) {
  double first = 1, second = 2;
  Trainer(with({keeper(first), keeper(second)})).fit(model_, batches(1));
  first = second = 0;
  Trainer(with({keeper(first), keeper(second)})).fit(model_, batches(1), std::nullopt, "last");
  EXPECT_THAT((std::vector{first, second}), ElementsAre(1, 2));
}

TEST_F(CallbackHooks, StateWithAKeyOfItsOwnFollowsTheKey) {
  double first = 1, second = 2;
  Trainer(with({keeper(first, "first"), keeper(second, "second")})).fit(model_, batches(1));
  first = second = 0;
  Trainer(with({keeper(second, "second"), keeper(first, "first")}))
      .fit(model_, batches(1), std::nullopt, "last");
  EXPECT_THAT((std::vector{first, second}), ElementsAre(1, 2));
}

// Two of a class with other options: what they have found stays with the options.
TEST_F(CallbackHooks, StateFollowsTheOptionsThatTellCallbacksApart) {
  const auto low = [] {
    return std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = "val_loss", .patience = 100});
  };
  const auto high = [] {
    return std::make_shared<EarlyStopping>(
        EarlyStoppingOptions{.monitor = "val_loss", .patience = 100, .mode = MonitorMode::kMax});
  };
  EXPECT_NE(low()->state_key(), high()->state_key());
  model_->losses = {3, 1, 2};
  auto chosen = with({low(), high()});
  chosen.max_epochs = 3;
  Trainer(chosen).fit(model_, batches(1), batches(1));
  const auto low_after = low(), high_after = high();
  chosen.callbacks = {high_after, low_after};
  Trainer(chosen).fit(model_, batches(1), batches(1), "last");
  EXPECT_EQ(low_after->best_score(), 1);
  EXPECT_EQ(high_after->best_score(), 3);
}

TEST_F(CallbackHooks, AllAreToldOfAFailureOnceInOrderWhateverTheOthersDo) {
  const auto told = [this](const char* name, bool fails) {
    return std::make_shared<LambdaCallback>(
        LambdaHooks{.on_exception = [this, name, fails](TrainContext&, const std::exception& error) {
          called_.push_back(std::string(name) + " " + error.what());
          if (fails) throw std::runtime_error("second");
        }});
  };
  struct Failing : testing::SlopeImpl {
    explicit Failing(Names& called_) : called(called_) {}
    torch::Tensor training_step(const Example&, StepContext&) override {
      throw std::runtime_error("scripted");
    }
    void on_exception(TrainContext&, const std::exception&) override { called.push_back("module"); }
    Names& called;
  };
  const auto chosen = with({told("first", true), told("second", false)});
  ::testing::internal::CaptureStderr();
  test::expect_error<std::runtime_error>(
      [&] { Trainer(chosen).fit(std::make_shared<Failing>(called_), batches(1)); }, {"scripted"});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("on_exception failed too: second"));
  EXPECT_THAT(called_, ElementsAre("first scripted", "second scripted", "module"));
}

}  // namespace
}  // namespace lockstep
