#include "train/data/open_data.h"

#include <string>
#include <utility>

#include <ATen/ops/tensor.h>

#include <lockstep/base/error.h>
#include <lockstep/fabric/batch_agreement.h>

namespace lockstep::detail {
namespace {

void begin(RunState& state, const DataSource& data) {
  state.data_module = data.module;
  if (!data.module) return;
  begin_stage(*data.module, state.stage, state.environment->local_rank(), state.environment->global_rank(),
              [&state] { state.strategy->barrier(); });
}

DataPart part_of(Stage stage) {
  if (stage == Stage::kTest) return DataPart::kTest;
  return stage == Stage::kPredict ? DataPart::kPredict : DataPart::kValidation;
}

void require(const LoaderList& loaders, Stage stage) {
  if (!loaders.empty()) return;
  throw ConfigError("train", {.what = "there is no loader for " + std::string(stage_name(stage)),
                              .expected = "a loader, or a data module that overrides it",
                              .got = "none"});
}

// Another loader, which says that it has so many batches.
class LoaderOfLength final : public AnyLoader {
 public:
  LoaderOfLength(std::shared_ptr<AnyLoader> loader, std::int64_t num_batches)
      : loader_(std::move(loader)), num_batches_(num_batches) {}

  std::int64_t num_batches(const ShardSpec&) const override { return num_batches_; }
  std::int64_t num_samples() const override { return loader_->num_samples(); }
  std::int64_t batch_size() const override { return loader_->batch_size(); }
  std::unique_ptr<BatchStream> stream(const ShardSpec& spec, std::int64_t epoch,
                                      std::int64_t skip_batches) const override {
    return loader_->stream(spec, epoch, skip_batches);
  }

 private:
  std::shared_ptr<AnyLoader> loader_;
  std::int64_t num_batches_;
};

// Streams of known lengths end with the shortest. Where one rank's is not known, none is.
std::shared_ptr<AnyLoader> of_common_length(std::shared_ptr<AnyLoader> loader, const ShardSpec& shard,
                                            const Communicator& communicator) {
  if (communicator.size() == 1 || loader->num_samples() != kUnknownLength) return loader;
  const auto own = loader->num_batches(shard);
  const auto ends = at::tensor({own, -own}, at::kLong);
  communicator.all_reduce(ends, ReduceOp::kMin);
  const auto shortest = ends[0].item<std::int64_t>(), longest = -ends[1].item<std::int64_t>();
  if (shortest == longest) return loader;
  return std::make_shared<LoaderOfLength>(std::move(loader),
                                          longest == kUnknownLength ? kUnknownLength : shortest);
}

// Where only the end tells the length, ranks must agree which batch is the last one.
void take_training_data(RunState& state, std::shared_ptr<AnyLoader> loader) {
  const auto shard = state.shard(/*pad=*/true);
  loader = of_common_length(std::move(loader), shard, state.communicator());
  check_shards(*loader, shard);
  const bool is_stream = loader->num_batches(shard) == kUnknownLength;
  state.train_loader =
      is_stream ? agree_on_batches(std::move(loader), state.communicator()) : std::move(loader);
}

// The loaders that `part` has from `epoch` on.
LoaderList ask(RunState& state, DataPart part, std::int64_t epoch) {
  state.data_module->set_current_epoch(epoch);
  return state.data_module->any_loaders(part);
}

std::shared_ptr<AnyLoader> ask_for_training_data(RunState& state, std::int64_t epoch) {
  const auto loaders = ask(state, DataPart::kTrain, epoch);
  require(loaders, state.stage);
  return loaders.front();
}

bool reloads(const RunState& state) {
  return state.data_module && state.options.reload_dataloaders_every_n_epochs > 0;
}

// Lightning's rule: what the sanity check has loaded counts where the first epoch validates.
void count_first_load(RunState& state) {
  const auto every = state.options.reload_dataloaders_every_n_epochs;
  const bool validates = state.options.check_val_every_n_epoch.value_or(1) == 1;
  state.progress.next_train_reload = every;
  state.progress.next_val_reload = validates ? every : 0;
}

}  // namespace

void open_training_data(RunState& state, const DataSource& data) {
  begin(state, data);
  if (!data.module) require({data.train}, state.stage);
  take_training_data(state, data.module ? ask_for_training_data(state, 0) : data.train);
  state.val_loaders.clear();
  if (!state.options.limit_val_batches.is_zero())
    state.val_loaders = data.module ? ask(state, DataPart::kValidation, 0) : data.evaluation;
  count_first_load(state);
}

LoaderList open_evaluation_data(RunState& state, const DataSource& data) {
  begin(state, data);
  auto loaders = data.module ? data.module->any_loaders(part_of(state.stage)) : data.evaluation;
  require(loaders, state.stage);
  return loaders;
}

bool reload_training_data(RunState& state) {
  auto& progress = state.progress;
  if (!reloads(state) || progress.epoch < progress.next_train_reload) return false;
  take_training_data(state, ask_for_training_data(state, progress.epoch));
  progress.next_train_reload = progress.epoch + state.options.reload_dataloaders_every_n_epochs;
  return true;
}

void reload_validation_data(RunState& state) {
  auto& progress = state.progress;
  if (!reloads(state) || progress.epoch < progress.next_val_reload) return;
  state.val_loaders = ask(state, DataPart::kValidation, progress.epoch);
  progress.next_val_reload = progress.epoch + state.options.reload_dataloaders_every_n_epochs;
}

void restore_reloaded_data(RunState& state) {
  if (!reloads(state)) return;
  const auto every = state.options.reload_dataloaders_every_n_epochs;
  const auto train = state.progress.next_train_reload - every;
  const auto val = state.progress.next_val_reload - every;
  if (train > 0) take_training_data(state, ask_for_training_data(state, train));
  if (val > 0 && !state.val_loaders.empty()) state.val_loaders = ask(state, DataPart::kValidation, val);
}

void reopen_training_data(RunState& state) {
  take_training_data(state, ask_for_training_data(state, state.progress.epoch));
  if (!state.val_loaders.empty()) state.val_loaders = ask(state, DataPart::kValidation, state.progress.epoch);
}

LoaderList reopen_evaluation_data(RunState& state) {
  auto loaders = state.data_module->any_loaders(part_of(state.stage));
  require(loaders, state.stage);
  return loaders;
}

void close_data(RunState& state) {
  if (state.data_module) state.data_module->teardown(state.stage);
  state.data_module = nullptr;
}

}  // namespace lockstep::detail
