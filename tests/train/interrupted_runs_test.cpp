// A run that is interrupted at a random moment and goes on leaves what one leaves that was not: weights,
// rows, files and what monitors know.
#include <sstream>

#include "train/scripted_losses.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::MonitoredRuns;
using testing::one_of;
using testing::Random;
using testing::random_losses;
using testing::ScriptedLosses;

// Saves at a moment, and ends the process's part of the run at the next.
class Interruption final : public Callback {
 public:
  Interruption(int moment, fs::path folder) : moment_(moment), folder_(std::move(folder)) {}
  void on_train_batch_end(StepContext& step, const TrainOutput&) override { save(step); }
  void on_validation_batch_end(StepContext& step) override { save(step); }
  void on_train_batch_start(StepContext&) override { end(); }
  void on_train_epoch_start(TrainContext&) override { end(); }
  void on_train_epoch_end(TrainContext&) override { end(); }
  void on_train_end(TrainContext&) override { end(); }
  void on_validation_start(TrainContext&) override { end(); }
  void on_validation_batch_start(StepContext&) override { end(); }
  void on_validation_epoch_end(TrainContext&) override { end(); }

 private:
  void save(TrainContext& context) {
    if (moment_-- == 0) context.save_checkpoint(folder_);
  }
  void end() const {
    if (moment_ < 0) throw std::runtime_error("interrupted");
  }
  int moment_;
  fs::path folder_;
};

// Everything that a run leaves.
struct Outcome {
  std::string text;
  friend bool operator==(const Outcome&, const Outcome&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Outcome& outcome) { return out << outcome.text; }
};

struct RandomRun {
  explicit RandomRun(unsigned seed) : random(seed) {
    losses = random_losses(random, 12);
    for (auto& loss : losses)
      if (std::isinf(loss)) loss = 2;
    checkpoint.monitor = random() % 3 == 0 ? "train_loss" : "val_loss";
    checkpoint.save_top_k = static_cast<int>(one_of(random, {1, 2, -1}));
    checkpoint.save_last = random() % 2 == 0 ? SaveLast::kTrue : SaveLast::kFalse;
    if (random() % 3 != 0) checkpoint.every_n_train_steps = one_of(random, {1, 2, 3});
    accumulate = static_cast<int>(one_of(random, {1, 2, 4}));
    val_check_interval = one_of(random, {0, 2, 3});
    min_epochs = one_of(random, {0, 0, 2, 3});
    patience = static_cast<int>(one_of(random, {1, 2, 9}));
    max_steps = one_of(random, {-1, -1, 5});
  }
  Random random;
  std::vector<double> losses;
  ModelCheckpointOptions checkpoint;
  int accumulate = 1, patience = 1;
  std::int64_t val_check_interval = 0, min_epochs = 0, max_steps = -1;
};

class InterruptedRuns : public MonitoredRuns {
 protected:
  // A run that goes on begins a file, with columns of its own.
  std::vector<std::string> rows_of(const std::string& file) const {
    const auto split = [](const std::string& line) {
      std::vector<std::string> cells;
      std::istringstream rest(line);
      for (std::string cell; std::getline(rest, cell, ',');) cells.push_back(cell);
      return cells;
    };
    if (!fs::exists(run_dir() / file)) return {};
    std::istringstream lines(test::content(run_dir() / file));
    std::string line;
    std::vector<std::string> rows;
    std::getline(lines, line);
    const auto columns = split(line);
    while (std::getline(lines, line)) {
      const auto cells = split(line);
      std::string row;
      for (std::size_t i = 0; i < cells.size(); ++i)
        if (!cells[i].empty()) row += columns[i] + ' ' + cells[i] + ' ';
      rows.push_back(row);
    }
    return rows;
  }
  Outcome run(const RandomRun& given, const std::string& from, std::shared_ptr<Callback> first = nullptr) {
    const auto checkpoint = std::make_shared<ModelCheckpoint>(given.checkpoint);
    const auto stopping = std::make_shared<EarlyStopping>(
        EarlyStoppingOptions{.monitor = "val_loss", .patience = given.patience, .check_finite = false});
    auto chosen = quiet(4, {checkpoint, stopping});
    if (first) chosen.callbacks.push_back(first);
    chosen.accumulate_grad_batches = given.accumulate;
    if (given.val_check_interval > 0) chosen.val_check_interval = given.val_check_interval;
    chosen.min_epochs = given.min_epochs;
    chosen.max_steps = given.max_steps;
    ScriptedLosses model;
    model->losses = given.losses;
    Trainer trainer(chosen);
    trainer.fit(model, batches(6), batches(2), from);
    std::ostringstream out;
    out << "w " << model->weight.item<double>() << " epoch " << trainer.current_epoch() << " step "
        << trainer.global_step() << " wait " << stopping->wait_count() << ' '
        << stopping->stopping_reason_message() << "\nbest " << checkpoint->best_model_path() << ' '
        << checkpoint->best_model_score().value_or(-1) << " last " << checkpoint->last_model_path() << '\n';
    for (const auto& [path, value] : checkpoint->best_k_models()) out << path << ' ' << value << '\n';
    for (const auto& name : kept()) out << "file " << name << '\n';
    auto rows = rows_of("metrics.1.csv");
    auto others = rows_of("metrics.csv");
    // What comes right behind the checkpoint was written before the interruption, too.
    while (!rows.empty() && !others.empty() && rows.back() == others.front()) rows.pop_back();
    rows.insert(rows.end(), others.begin(), others.end());
    for (const auto& row : rows) out << row << '\n';
    return {out.str()};
  }
};

TEST_F(InterruptedRuns, EndAsThoseThatWereNot) {
  int interrupted = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomRun given(seed);
    fs::remove_all(run_dir());
    const auto whole = run(given, {});
    fs::remove_all(run_dir());
    const auto from = folder_ / "interrupted.ckpt";
    fs::remove_all(from);
    const auto moment = static_cast<int>(given.random() % 28);
    try {
      run(given, {}, std::make_shared<Interruption>(moment, from));
    } catch (const std::runtime_error& error) {
      ASSERT_STREQ(error.what(), "interrupted");
      ++interrupted;
      EXPECT_EQ(run(given, from), whole) << "interrupted at " << moment;
    }
  }
  EXPECT_GT(interrupted, 30);
}

}  // namespace
}  // namespace lockstep
