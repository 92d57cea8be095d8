// Random windows, stopped at a random micro-batch: weights, steps, rates and the estimate of steps are what a
// model in a few lines says. LOCKSTEP_WINDOW_SEEDS: how many.
#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include <lockstep/base/env.h>
#include <lockstep/testing/fork_ranks.h>

#include "support/temporary_folder.h"
#include "train/callbacks/failing_fit.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using std::int64_t;

constexpr double kGamma = 0.9;
constexpr double kGradients[] = {1, 2, 4,  7, 3,
                                 9, 5, 12, 6};  // by the number of the micro-batch in its epoch

struct Settings {
  AccumulationSchedule::Steps schedule;
  PartialWindow partial = PartialWindow::kAccumulated;
  int64_t batches = 1;
  int64_t epochs = 1;
};

// What is right.
struct Model {
  double weight = 0, rate = 1, sum = 0;
  int64_t steps = 0, epoch = 0, batch = 0, done = 0, length = 1;

  void step() {
    weight -= rate * sum / static_cast<double>(length);
    rate *= kGamma;
    ++steps;
    done = 0;
  }
  void micro_batch(const Settings& s) {
    const bool carries = s.partial == PartialWindow::kCarry;
    if (done == 0) {
      sum = 0;
      length = AccumulationSchedule(s.schedule).at(epoch);
      if (s.partial == PartialWindow::kAccumulated) length = std::min(length, s.batches - batch);
    }
    sum += kGradients[batch++];
    if (++done == length || (!carries && batch == s.batches)) step();
  }
  void train(const Settings& s, int64_t micro_batches = 1'000'000) {
    while (epoch < s.epochs && micro_batches > 0) {
      for (; batch < s.batches && micro_batches > 0; --micro_batches) micro_batch(s);
      if (micro_batches == 0) return;
      ++epoch;
      batch = 0;
      if (s.partial != PartialWindow::kCarry) done = 0;
    }
  }
  // A window that lacks the micro-batches it was divided by is begun anew.
  void resume(const Settings& s) {
    if (s.partial != PartialWindow::kAccumulated || length - done <= s.batches - batch || done == 0) return;
    batch -= done;
    done = 0;
  }
};

struct WeightsImpl : Module<Example> {
  WeightsImpl() { weight = register_parameter("weight", torch::zeros({4})); }
  torch::Tensor training_step(const Example& batch, StepContext&) override {
    return (weight * batch.data.mean()).sum();
  }
  Optimizers configure_optimizers() override {
    return {.optimizer = SGD{.lr = 1.0},
            .lr_scheduler =
                LRScheduler{.scheduler = ExponentialLR{.gamma = kGamma}, .interval = Interval::kStep}};
  }
  torch::Tensor weight;
};
TORCH_MODULE(Weights);

// Saves at a micro-batch, and asks at each how many steps there will be.
struct Observer final : Callback {
  void on_train_start(TrainContext& context) override { ask(context); }
  void on_train_epoch_start(TrainContext& context) override { ask(context); }
  void on_before_zero_grad(StepContext& step) override { ask(step); }
  void on_train_batch_end(StepContext& step, const TrainOutput&) override {
    ask(step);
    rate = step.optimizers().front().optimizer->groups().front().lr;
    if (--save_in == 0) step.save_checkpoint(folder);
  }
  void on_train_epoch_end(TrainContext& context) override { ask(context); }
  void ask(TrainContext& context) {
    const auto steps = context.estimated_stepping_batches().value_or(-1);
    least = std::min(least, steps);
    most = std::max(most, steps);
  }
  fs::path folder;
  int64_t save_in = -1, least = 1'000'000, most = -1;
  std::optional<double> rate;
};

class RandomWindows {
 public:
  RandomWindows(unsigned seed, std::size_t ranks, fs::path folder, TrainerOptions options)
      : random_(seed), ranks_(ranks), folder_(std::move(folder)), options_(std::move(options)) {
    options_.run.run_dir = folder_ / "run";
    options_.enable_checkpointing = false;
    options_.logger = false;
    settings_.partial =
        drawn({PartialWindow::kAccumulated, PartialWindow::kLightning, PartialWindow::kCarry});
    const bool is_deepspeed = std::holds_alternative<DeepSpeed>(options_.strategy);
    options_.partial_window = settings_.partial;
    if (is_deepspeed && settings_.partial == PartialWindow::kAccumulated)
      settings_.partial = PartialWindow::kCarry;
    settings_.epochs = number(2, 5);
    draw_windows();
  }
  // Empty where all is right; else what is wrong.
  std::string run(const std::function<void()>& before_fit) {
    const auto stop = number(1, settings_.epochs * settings_.batches);
    const auto saved = folder_ / "saved.ckpt";
    const auto observer = std::make_shared<Observer>();
    observer->save_in = stop;
    observer->folder = saved;
    Model whole, resumed;
    whole.train(settings_);
    resumed.train(settings_, stop);
    before_fit();
    check("undisturbed", observer, whole, {});
    if (number(0, 2) == 0) draw_windows();
    resumed.resume(settings_);
    resumed.train(settings_);
    before_fit();
    check("from micro-batch " + std::to_string(stop), std::make_shared<Observer>(), resumed, saved);
    return said_.str();
  }

 private:
  int64_t number(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  PartialWindow drawn(std::vector<PartialWindow> from) {
    return from[static_cast<std::size_t>(number(0, std::ssize(from) - 1))];
  }
  void draw_windows() {
    settings_.batches = number(1, std::ssize(kGradients));
    settings_.schedule.clear();
    for (auto entries = number(1, 3); entries > 0; --entries)
      settings_.schedule[number(0, settings_.epochs - 1)] = static_cast<int>(number(1, 6));
  }
  std::string settings_text() const {
    return AccumulationSchedule(settings_.schedule).print() + " partial " +
           std::to_string(static_cast<int>(settings_.partial)) + " batches " +
           std::to_string(settings_.batches) + " epochs " + std::to_string(settings_.epochs);
  }
  // All ranks get the same row at the same time.
  Loader<Example> rows() const {
    std::vector<float> values;
    for (const auto gradient : kGradients) values.insert(values.end(), ranks_, static_cast<float>(gradient));
    return loader(tensor_dataset(torch::tensor(values).view({-1, 1})), {.batch_size = 1});
  }
  void check(const std::string& what, const std::shared_ptr<Observer>& observer, const Model& right,
             const fs::path& from) {
    auto options = options_;
    options.max_epochs = settings_.epochs;
    options.limit_train_batches = settings_.batches;
    options.callbacks = {observer};
    if (by_callback_)
      options.callbacks.push_back(std::make_shared<GradientAccumulationScheduler>(settings_.schedule));
    if (!by_callback_) options.accumulate_grad_batches = AccumulationSchedule(settings_.schedule);
    Weights model;
    Trainer trainer(options);
    trainer.fit(model, rows(), {}, from.string());
    const auto last = folder_ / "last.ckpt";
    trainer.save_checkpoint(last, /*weights_only=*/true);
    expect(what + ": weight", Checkpoint(last).entry("model").get<at::Tensor>("weight")[0].item<double>(),
           right.weight);
    expect(what + ": steps", static_cast<double>(trainer.global_step()), static_cast<double>(right.steps));
    if (observer->most < 0) return;  // nothing was left to do
    if (observer->rate) expect(what + ": rate", *observer->rate, right.rate);
    expect(what + ": least estimate", static_cast<double>(observer->least), static_cast<double>(right.steps));
    expect(what + ": greatest estimate", static_cast<double>(observer->most),
           static_cast<double>(right.steps));
  }
  void expect(const std::string& what, double got, double right) {
    if (std::abs(got - right) <= 1e-4 * std::max(1.0, std::abs(right))) return;
    said_ << what << " " << got << ", right " << right << " (" << settings_text() << ")\n";
  }

  std::mt19937 random_;
  std::size_t ranks_;
  fs::path folder_;
  TrainerOptions options_;
  Settings settings_;
  bool by_callback_ = random_() % 2 == 0;
  std::ostringstream said_;
};

int seeds() { return std::stoi(env::get("LOCKSTEP_WINDOW_SEEDS").value_or("4")); }

TEST(AccumulationRuns, OfOneDevice) {
  for (int seed = 0; seed < 5 * seeds(); ++seed) {
    const test::TemporaryFolder folder;
    RandomWindows run(static_cast<unsigned>(seed), 1, folder.path(), testing::quiet_options({}, {}));
    EXPECT_EQ(run.run([] {}), "") << "seed " << seed;
  }
}

TrainerOptions options_of(const std::string& strategy) {
  auto options = testing::quiet_options({}, {});
  options.devices = 2;
  if (strategy == "ddp") options.strategy = Ddp{};
  if (strategy == "ddp_every") options.strategy = Ddp{.reduce_every_micro_batch = true};
  if (strategy == "fsdp") options.strategy = Fsdp{};
  if (strategy.starts_with("deepspeed")) options.strategy = DeepSpeed{.stage = strategy.back() - '0'};
  return options;
}

// Argument: "STRATEGY SEEDS FOLDER".
LOCKSTEP_RANK_BODY(random_windows)(Communicator comm, std::string argument)->std::string {
  std::istringstream words(argument);
  std::string strategy, folder;
  int count = 0;
  words >> strategy >> count >> folder;
  std::string said;
  for (int seed = 0; seed < count; ++seed) {
    RandomWindows run(static_cast<unsigned>(seed), 2, folder, options_of(strategy));
    if (const auto wrong = run.run([&] { testing::become_trainer_rank(comm); }); !wrong.empty())
      said += "seed " + std::to_string(seed) + ": " + wrong;
  }
  return said;
}

TEST(AccumulationRuns, OfTwoRanks) {
  for (const std::string strategy :
       {"ddp", "ddp_every", "fsdp", "deepspeed_0", "deepspeed_1", "deepspeed_2", "deepspeed_3"}) {
    SCOPED_TRACE(strategy);
    const test::TemporaryFolder folder;
    const auto argument = strategy + " " + std::to_string(seeds()) + " " + folder.path().string();
    for (const auto& rank :
         testing::fork_ranks(2, "random_windows", argument, {.deadline = std::chrono::minutes(20)}))
      EXPECT_EQ(rank.result + rank.error, "");
  }
}

}  // namespace
}  // namespace lockstep
