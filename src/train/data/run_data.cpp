#include "train/data/run_data.h"

#include <string>
#include <utility>

#include <ATen/ops/tensor.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/fabric/fabric_loader.h>
#include <lockstep/train/data_module.h>

#include "base/failure_place.h"
#include "train/logging/profiled_hook.h"

namespace lockstep::detail {
namespace {

void begin(const RunSetup& setup, RunData& data, const DataSource& source) {
  data.module = source.module;
  if (!data.module) return;
  begin_stage(
      *data.module, setup.stage, setup.environment->local_rank(), setup.environment->global_rank(),
      [&setup] { setup.strategy->barrier(); }, setup.profiler.get());
}

DataPart part_of(Stage stage) {
  if (stage == Stage::kTest) return DataPart::kTest;
  return stage == Stage::kPredict ? DataPart::kPredict : DataPart::kValidation;
}

void require(const LoaderList& loaders, Stage stage) {
  if (!loaders.empty() && std::ranges::count(loaders, nullptr) == 0) return;
  throw ConfigError("train", {.what = "there is no loader for " + std::string(stage_name(stage)),
                              .expected = "a loader, or a data module that overrides it",
                              .got = "none"});
}

// A loader that reports another number of batches than the loader that it wraps.
class LoaderOfLength final : public AnyLoader {
 public:
  LoaderOfLength(std::shared_ptr<AnyLoader> loader, std::int64_t num_batches)
      : loader_(std::move(loader)), num_batches_(num_batches) {}

  std::int64_t num_batches(const ShardSpec&) const override { return num_batches_; }
  std::int64_t num_samples() const override { return loader_->num_samples(); }
  std::int64_t batch_size() const override { return loader_->batch_size(); }
  bool is_dealt_out() const override { return loader_->is_dealt_out(); }
  std::unique_ptr<BatchStream> stream(const ShardSpec& spec, std::int64_t epoch,
                                      std::int64_t skip_batches) const override {
    return loader_->stream(spec, epoch, skip_batches);
  }

 private:
  std::shared_ptr<AnyLoader> loader_;
  std::int64_t num_batches_;
};

// Streams, loaders whose samplers divide the data, and those of ranks that have data of their own end with
// the shortest rank's. Where the length is unknown on one rank, it is unknown on all.
std::shared_ptr<AnyLoader> of_common_length(std::shared_ptr<AnyLoader> loader, const ShardSpec& shard,
                                            const Communicator& communicator) {
  const bool is_dealt_out = loader->is_dealt_out() && shard.num_replicas == communicator.size();
  const bool is_equal = loader->num_samples() != kUnknownLength && is_dealt_out;
  if (communicator.size() == 1 || is_equal) return loader;
  const auto own = loader->num_batches(shard);
  const auto ends = at::tensor({own, -own}, at::kLong);
  communicator.all_reduce(ends, ReduceOp::kMin);
  const auto shortest = ends[0].item<std::int64_t>(), longest = -ends[1].item<std::int64_t>();
  if (shortest == longest) return loader;
  return std::make_shared<LoaderOfLength>(std::move(loader),
                                          longest == kUnknownLength ? kUnknownLength : shortest);
}

void warn_of_same_samples(const RunSetup& setup, const AnyLoader& loader) {
  const bool is_divided = setup.options.use_distributed_sampler || !loader.is_dealt_out();
  if (is_divided || setup.communicator().size() == 1 || !setup.is_global_zero()) return;
  warn_once(
      "train.use_distributed_sampler",
      "use_distributed_sampler = false, and the loader has no sampler that divides the data: unless each "
      "rank has "
      "data of its own, all " +
          std::to_string(setup.communicator().size()) +
          " ranks train on the same samples; give it a DistributedSampler, or leave the option as it is");
}

// Where the length is unknown, ranks must agree which batch is the last one.
void take_training_data(const RunSetup& setup, RunData& data, std::shared_ptr<AnyLoader> loader) {
  const auto shard = setup.shard(/*pad=*/true);
  loader = of_common_length(std::move(loader), shard, setup.communicator());
  check_shards(*loader, shard);
  warn_of_same_samples(setup, *loader);
  const bool is_stream = loader->num_batches(shard) == kUnknownLength;
  data.train = is_stream ? agree_on_batches(std::move(loader), setup.communicator()) : std::move(loader);
}

// Asks the data module for the loaders of `part` that are used from `epoch` on.
LoaderList ask(const RunData& data, DataPart part, std::int64_t epoch) {
  data.module->set_current_epoch(epoch);
  return data.module->any_loaders(part);
}

std::shared_ptr<AnyLoader> ask_for_training_data(const RunSetup& setup, const RunData& data,
                                                 std::int64_t epoch) {
  const auto loaders = ask(data, DataPart::kTrain, epoch);
  require(loaders, setup.stage);
  return loaders.front();
}

bool reloads(const RunSetup& setup, const RunData& data) {
  return data.module && setup.options.reload_dataloaders_every_n_epochs > 0;
}

// As in Lightning, loading the data for the sanity check counts as the first load of the validation data
// where the first epoch validates.
void count_first_load(const RunSetup& setup, FitProgress& progress) {
  const auto every = setup.options.reload_dataloaders_every_n_epochs;
  const bool validates = setup.options.check_val_every_n_epoch.value_or(1) == 1;
  progress.next_train_reload = every;
  progress.next_val_reload = validates ? every : 0;
}

}  // namespace

void open_training_data(const RunSetup& setup, RunData& data, FitProgress& progress,
                        const DataSource& source) {
  begin(setup, data, source);
  if (!data.module) require({source.train}, setup.stage);
  take_training_data(setup, data, data.module ? ask_for_training_data(setup, data, 0) : source.train);
  data.val.clear();
  if (!setup.options.limit_val_batches.is_zero())
    data.val = data.module ? ask(data, DataPart::kValidation, 0) : source.evaluation;
  count_first_load(setup, progress);
}

LoaderList open_evaluation_data(const RunSetup& setup, RunData& data, const DataSource& source) {
  begin(setup, data, source);
  auto loaders = data.module ? data.module->any_loaders(part_of(setup.stage)) : source.evaluation;
  require(loaders, setup.stage);
  return loaders;
}

bool reload_training_data(const RunSetup& setup, RunData& data, FitProgress& progress) {
  if (!reloads(setup, data) || progress.epoch < progress.next_train_reload) return false;
  take_training_data(setup, data, ask_for_training_data(setup, data, progress.epoch));
  progress.next_train_reload = progress.epoch + setup.options.reload_dataloaders_every_n_epochs;
  return true;
}

void reload_validation_data(const RunSetup& setup, RunData& data, FitProgress& progress) {
  if (!reloads(setup, data) || progress.epoch < progress.next_val_reload) return;
  data.val = ask(data, DataPart::kValidation, progress.epoch);
  progress.next_val_reload = progress.epoch + setup.options.reload_dataloaders_every_n_epochs;
}

void restore_reloaded_data(const RunSetup& setup, RunData& data, const FitProgress& progress) {
  if (!reloads(setup, data)) return;
  const auto every = setup.options.reload_dataloaders_every_n_epochs;
  const auto train = progress.next_train_reload - every;
  const auto val = progress.next_val_reload - every;
  if (train > 0) take_training_data(setup, data, ask_for_training_data(setup, data, train));
  if (val > 0 && !data.val.empty()) data.val = ask(data, DataPart::kValidation, val);
}

void reopen_training_data(const RunSetup& setup, RunData& data, const FitProgress& progress) {
  take_training_data(setup, data, ask_for_training_data(setup, data, progress.epoch));
  if (!data.val.empty()) data.val = ask(data, DataPart::kValidation, progress.epoch);
}

LoaderList reopen_evaluation_data(const RunSetup& setup, const RunData& data) {
  auto loaders = data.module->any_loaders(part_of(setup.stage));
  require(loaders, setup.stage);
  return loaders;
}

void close_data(const RunSetup& setup, RunData& data) {
  if (data.module) {
    const auto measured = profiled_hook(setup.profiler.get(), kDataModuleKind, *data.module, "teardown");
    data.module->teardown(setup.stage);
  }
  data.module = nullptr;
}

}  // namespace lockstep::detail

namespace lockstep {

AnyDataModule::~AnyDataModule() = default;

void detail::begin_stage(AnyDataModule& data, Stage stage, int local_rank, int global_rank,
                         const std::function<void()>& barrier, Profiler* profiler) {
  const int rank = data.prepare_data_per_node() ? local_rank : global_rank;
  if (rank == 0) {
    const auto measured = profiled_hook(profiler, kDataModuleKind, data, "prepare_data");
    in_place("prepare_data of the data module", [&] { data.prepare_data(); });
  }
  barrier();
  const auto measured = profiled_hook(profiler, kDataModuleKind, data, "setup");
  in_place("setup of the data module", [&] { data.setup(stage); });
}

}  // namespace lockstep
