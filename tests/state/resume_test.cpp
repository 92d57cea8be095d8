// The seam that resuming hangs on: what all parts of a run give, taken by new ones, continues it bit
// for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include "train/data/fit_progress.h"
#include "train/logging/metric_log.h"

namespace lockstep {
namespace {

constexpr std::int64_t kBatchesPerEpoch = 4;  // 7 steps end in the second epoch
constexpr std::uint64_t kSeed = 5;

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::Dropout(0.5),
                               torch::nn::Linear(8, 1));
}

Loader<Example> make_loader(int num_workers) {
  torch::manual_seed(1);
  const auto x = torch::randn({kBatchesPerEpoch * 3, 4});
  return loader(tensor_dataset(x, x.sum(1, true)),
                {.batch_size = 3, .shuffle = true, .num_workers = num_workers, .seed = kSeed});
}

// A callback with something to remember.
struct TotalLoss : Callback {
  StateTree state() const override {
    StateTree state;
    state.set("total", total);
    return state;
  }
  void load_state(const StateTree& state) override { total = state.get<double>("total"); }
  double total = 0;
};

std::unique_ptr<Optimizer> make_optimizer(const torch::nn::Sequential& net) {
  std::vector<NamedParameter> parameters;
  for (const auto& item : net->named_parameters()) parameters.push_back({item.key(), item.value()});
  const AdamW adamw{.lr = 0.05, .groups = {{.pattern = "*.bias", .lr = 0.01, .weight_decay = 0.0}}};
  return OptimizerFactory(adamw).create(std::move(parameters));
}

// The parts of a training run, in a loop that can be left and entered after any step.
class Training {
 public:
  explicit Training(std::uint64_t seed, int num_workers = 0) : loader_(make_loader(num_workers)) {
    torch::manual_seed(seed);
    net_ = make_net();
    optimizer_ = make_optimizer(net_);
    scheduler_ = std::make_unique<Scheduler>(CosineAnnealingLR{.T_max = 7}, *optimizer_);
    log_.set_scope(detail::kTrainStepLog);
    log_.set_batch_size(3);
  }

  void train_until(std::int64_t global_step) {
    while (progress_.global_step < global_step) {
      for (const auto& batch : loader_.epoch(progress_.epoch, {}, progress_.batches)) {
        step(batch);
        if (progress_.batches == kBatchesPerEpoch) break;
        if (progress_.global_step == global_step) return;
      }
      epoch_rows_.push_back(log_.finish_epoch(alone_));
      ++progress_.epoch;
      progress_.batches = 0;
    }
  }

  StateTree state() {
    StateTree state;
    state.set("model", module_state(*net_));
    state.set("optimizer", state_of(*optimizer_));
    state.set("scheduler", state_of(*scheduler_));
    state.set("random", random_state());
    state.set("progress", state_of(progress_));
    state.set("data", state_of(DataPosition{.epoch = progress_.epoch, .batches = progress_.batches}));
    state.set("callback", callback_.state());
    state.set("log", log_.state());
    return state;
  }

  void load_state(const StateTree& state) {
    load_module_state(*net_, state.get<StateTree>("model"));
    lockstep::load_state(*optimizer_, state.get<StateTree>("optimizer"));
    lockstep::load_state(*scheduler_, state.get<StateTree>("scheduler"));
    load_random_state(state.get<StateTree>("random"));
    detail::load_state(progress_, state.get<StateTree>("progress"));
    DataPosition position;
    lockstep::load_state(position, state.get<StateTree>("data"));
    EXPECT_EQ(position, (DataPosition{.epoch = progress_.epoch, .batches = progress_.batches}));
    callback_.load_state(state.get<StateTree>("callback"));
    log_.load_state(state.get<StateTree>("log"));
  }

  const std::vector<detail::MetricRow>& epoch_rows() const { return epoch_rows_; }

 private:
  void step(const Example& batch) {
    const auto loss = torch::mse_loss(net_->forward(batch.data), batch.target);
    log_.log("loss", loss.item<double>(), {.on_epoch = true});
    callback_.total += loss.item<double>();
    optimizer_->zero_grad();
    loss.backward();
    optimizer_->step();
    scheduler_->step();
    ++progress_.global_step;
    ++progress_.batches;
  }

  Loader<Example> loader_;
  torch::nn::Sequential net_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Scheduler> scheduler_;
  detail::FitProgress progress_;
  TotalLoss callback_;
  detail::MetricBoard board_;
  detail::MetricLog log_{board_};
  Communicator alone_;
  std::vector<detail::MetricRow> epoch_rows_;
};

class SingleThread {
 public:
  SingleThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~SingleThread() { at::set_num_threads(before_); }
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;

 private:
  int before_;
};

TEST(Resume, ContinuesBitForBitInTheMiddleOfAnEpoch) {
  const SingleThread single_thread;
  Training whole(11);
  whole.train_until(3);
  const auto saved = whole.state().clone();
  whole.train_until(7);
  const auto expected = whole.state().clone();

  // Other weights and random numbers; workers do not matter.
  for (const int num_workers : {0, 2}) {
    Training resumed(12, num_workers);
    resumed.load_state(saved);
    EXPECT_THAT(differences(saved, resumed.state()), ::testing::IsEmpty());
    resumed.train_until(7);
    EXPECT_THAT(differences(expected, resumed.state()), ::testing::IsEmpty());
    EXPECT_EQ(resumed.epoch_rows(), whole.epoch_rows());
  }
}

// Each part matters: without one of them the run goes another way.
TEST(Resume, NeedsEveryPart) {
  const SingleThread single_thread;
  Training whole(11);
  whole.train_until(3);
  const auto saved = whole.state().clone();
  whole.train_until(7);
  const auto expected = whole.state().clone();
  for (const char* part : {"model", "optimizer", "scheduler", "random", "progress", "callback", "log"}) {
    Training resumed(12);
    auto state = resumed.state().clone();
    for (const auto& entry : saved.entries()) {
      if (entry.name != part) state.set(entry.name, entry.value);
    }
    if (part == std::string("progress")) state.set("data", state_of(DataPosition()));
    resumed.load_state(state);
    resumed.train_until(7);
    EXPECT_FALSE(resumed.state() == expected && resumed.epoch_rows() == whole.epoch_rows()) << part;
  }
}

}  // namespace
}  // namespace lockstep
