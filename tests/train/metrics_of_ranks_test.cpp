// What two ranks with batches of other sizes log in a Trainer, against what Lightning's ranks log.
// Lightning's means over ranks weigh each rank alike and cut the number of samples to a whole one; the
// numbers here are those of all samples.
#include <fstream>
#include <map>
#include <sstream>

#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <lockstep/testing/fork_ranks.h>
#include <nlohmann/json.hpp>

#include "support/paths.h"
#include "support/temporary_folder.h"
#include "train/memory_logger.h"
#include "train/trainer_rank.h"

namespace lockstep {
namespace {

using nlohmann::json;

json golden() {
  return json::parse(std::ifstream(test::in_repository("tests/train/golden_metrics_sync.json")));
}

// One rank's batches, of those sizes, each of one value.
struct GivenBatches final : AnyLoader {
  GivenBatches(std::vector<std::int64_t> sizes_, std::vector<float> values_)
      : sizes(std::move(sizes_)), values(std::move(values_)) {}
  struct Stream final : BatchStream {
    bool next(AnyBatch& batch) override {
      if (at == loader->sizes.size()) return false;
      const auto size = loader->sizes[at];
      const Example example{torch::full({size, 1}, loader->values[at++]), {}};
      batch = AnyBatch(std::make_shared<const Example>(example), size);
      return true;
    }
    const GivenBatches* loader = nullptr;
    std::size_t at = 0;
  };
  std::int64_t num_batches(const ShardSpec&) const override {
    return static_cast<std::int64_t>(sizes.size());
  }
  std::int64_t num_samples() const override { return 100; }
  std::int64_t batch_size() const override { return 5; }
  std::unique_ptr<BatchStream> stream(const ShardSpec&, std::int64_t, std::int64_t skip) const override {
    auto stream = std::make_unique<Stream>();
    stream->loader = this;
    stream->at = static_cast<std::size_t>(skip);
    return stream;
  }
  std::vector<std::int64_t> sizes;
  std::vector<float> values;
};

Loader<Example> of_rank(const json& config, const std::string& kind, int rank) {
  const auto& sizes = config.at(kind + "_batch_sizes_per_rank").at(static_cast<std::size_t>(rank));
  const auto& values = config.at(kind + "_values_per_rank").at(static_cast<std::size_t>(rank));
  return Loader<Example>(std::make_shared<GivenBatches>(sizes, values), {});
}

struct LoggingImpl : Module<Example> {
  LoggingImpl() { weight = register_parameter("weight", torch::zeros({1})); }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    const auto value = batch.data[0].item<double>() + 100.0 * static_cast<double>(step.current_epoch());
    const LogOptions both{.on_step = true, .on_epoch = true, .sync_dist = true};
    step.log("both_sync", value, both);
    step.log("both_nosync", value, {.on_step = true, .on_epoch = true});
    step.log("default_sync", value, {.sync_dist = true});
    const LogOptions epoch{.on_step = false, .on_epoch = true, .sync_dist = true};
    step.log("epoch_bs_sync", value, epoch);
    auto each_batch_once = epoch;
    each_batch_once.batch_size = 1;
    step.log("epoch_bs1_sync", value, each_batch_once);
    for (const auto& [name, fx] :
         {std::pair{"sum_sync", ReduceFx::kSum}, std::pair{"max_sync", ReduceFx::kMax},
          std::pair{"min_sync", ReduceFx::kMin}}) {
      auto reduced = both;
      reduced.reduce_fx = fx;
      step.log(name, value, reduced);
    }
    return weight.sum();
  }
  void validation_step(const Example& batch, StepContext& step) override {
    const auto value = batch.data[0].item<double>() + 1000.0 * static_cast<double>(step.current_epoch());
    step.log("val_sync", value, {.sync_dist = true});
    step.log("val_nosync", value);
    step.log("val_both", value, {.on_step = true, .on_epoch = true, .sync_dist = true});
  }
  Optimizers configure_optimizers() override { return {.optimizer = SGD{}}; }
  torch::Tensor weight;
};

TrainerOptions options_of_two(const std::string& folder, std::shared_ptr<Logger> logger) {
  TrainerOptions options{.max_epochs = 2, .num_sanity_val_steps = 1, .log_every_n_steps = 1};
  options.enable_progress_bar = options.enable_model_summary = false;
  options.strategy = Ddp{};
  options.devices = 2;
  options.logger = std::move(logger);
  options.run.run_dir = folder;
  return options;
}

// The rows of the logger and the callback metrics, as JSON.
LOCKSTEP_RANK_BODY(metrics_of_two_ranks)(Communicator comm, std::string folder)->std::string {
  testing::become_trainer_rank(comm);
  const auto config = golden().at("config");
  const auto logger = std::make_shared<testing::MemoryLogger>();
  Trainer trainer(options_of_two(folder, logger));
  trainer.fit(std::make_shared<LoggingImpl>(), of_rank(config, "train", comm.rank()),
              of_rank(config, "val", comm.rank()));
  json found{{"rows", json::object()}, {"metrics", json::object()}};
  for (std::size_t i = 0; i < logger->rows.size(); ++i) found["rows"][logger->rows[i]] = logger->values[i];
  for (const auto& [name, value] : trainer.callback_metrics()) found["metrics"][name] = value;
  return found.dump();
}

struct OfRank1Impl : LoggingImpl {
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    if (step.global_rank() == 1) step.log("x", batch.data[0], {.sync_dist = true});
    return weight.sum();
  }
};

// The rows of the logger; behind a bar the callback metrics.
LOCKSTEP_RANK_BODY(step_metrics_of_rank_1)(Communicator comm, std::string folder)->std::string {
  testing::become_trainer_rank(comm);
  const auto logger = std::make_shared<testing::MemoryLogger>();
  const std::vector<float> values = comm.rank() == 0 ? std::vector<float>{5, 6} : std::vector<float>{7, 8};
  Trainer trainer(options_of_two(folder, logger));
  trainer.fit(std::make_shared<OfRank1Impl>(),
              Loader<Example>(std::make_shared<GivenBatches>(std::vector<std::int64_t>{1, 1}, values), {}));
  std::ostringstream found;
  for (std::size_t i = 0; i < logger->rows.size(); ++i)
    found << logger->rows[i] << '=' << logger->values[i] << ' ';
  for (const auto& [name, value] : trainer.callback_metrics()) found << "| " << name << '=' << value;
  return found.str();
}

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> found(1);
  for (const char c : line) {
    if (c == ',')
      found.emplace_back();
    else
      found.back() += c;
  }
  return found;
}

// As MemoryLogger has them: "name@step".
std::map<std::string, double> golden_means(const std::string& csv) {
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  const auto names = cells(line);
  const auto step = static_cast<std::size_t>(std::ranges::find(names, "step") - names.begin());
  std::map<std::string, double> rows;
  while (std::getline(lines, line)) {
    const auto values = cells(line);
    for (std::size_t i = 0; i < names.size() && i < values.size(); ++i) {
      if (values[i].empty() || names[i] == "epoch" || i == step) continue;
      rows[names[i] + "@" + values[step]] = std::stod(values[i]);
    }
  }
  return rows;
}

void expect_equal(const json& found, const std::map<std::string, double>& expected) {
  for (const auto& [name, value] : expected) {
    if (name.starts_with("rz")) continue;             // rank_zero_only, which ours has not
    if (name.starts_with("val_both_step")) continue;  // ranks may have other numbers of these
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_NEAR(found.at(name).get<double>(), value, 1e-6 * std::abs(value)) << name;
  }
}

TEST(MetricsOfRanks, AreLightningsOfAllSamples) {
  const test::TemporaryFolder folder;
  const auto ranks = testing::fork_ranks(2, "metrics_of_two_ranks", (folder / "run").string());
  const auto expected = golden();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(ranks[rank].error, "");
    const auto found = json::parse(ranks[rank].result);
    if (rank == 0) expect_equal(found.at("rows"), golden_means(expected.at("metrics_csv")));
    expect_equal(found.at("metrics"), expected.at("callback_metrics").at(rank));
  }
}

TEST(MetricsOfRanks, AreWrittenWhereOnlyTheSecondRankLogsThem) {
  const test::TemporaryFolder folder;
  const auto ranks = testing::fork_ranks(2, "step_metrics_of_rank_1", (folder / "run").string());
  for (const auto& rank : ranks) ASSERT_EQ(rank.error, "");
  EXPECT_EQ(ranks[0].result, "x@0=7 x@1=8 x@2=7 x@3=8 | x=8");
  EXPECT_EQ(ranks[1].result, "| x=8");
}

}  // namespace
}  // namespace lockstep
