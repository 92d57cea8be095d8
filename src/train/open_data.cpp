#include "train/open_data.h"

#include <string>

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

void require(const std::shared_ptr<AnyLoader>& loader, Stage stage) {
  if (loader) return;
  throw ConfigError("train", {.what = "the data module has no loader for " + std::string(stage_name(stage)),
                              .expected = "a data module that overrides it",
                              .got = "none"});
}

void take_training_loaders(RunState& state, const DataSource& data) {
  state.train_loader = data.module ? data.module->any_loader(DataPart::kTrain) : data.loader;
  state.val_loader = data.module ? data.module->any_loader(DataPart::kValidation) : data.val;
  require(state.train_loader, state.stage);
  if (state.options.limit_val_batches.is_zero()) state.val_loader = nullptr;
  const auto shard = state.shard(/*pad=*/true);
  check_shards(*state.train_loader, shard);
  // Where only the end tells the length, ranks must agree which batch is the last one.
  if (state.train_loader->num_batches(shard) == kUnknownLength)
    state.train_loader = agree_on_batches(state.train_loader, state.communicator());
}

std::shared_ptr<AnyLoader> evaluation_loader(const RunState& state, const DataSource& data) {
  auto loader = data.module ? data.module->any_loader(part_of(state.stage)) : data.loader;
  require(loader, state.stage);
  return loader;
}

}  // namespace

void open_training_data(RunState& state, const DataSource& data) {
  begin(state, data);
  take_training_loaders(state, data);
}

std::shared_ptr<AnyLoader> open_evaluation_data(RunState& state, const DataSource& data) {
  begin(state, data);
  return evaluation_loader(state, data);
}

void reopen_training_data(RunState& state) { take_training_loaders(state, {.module = state.data_module}); }

std::shared_ptr<AnyLoader> reopen_evaluation_data(RunState& state) {
  return evaluation_loader(state, {.module = state.data_module});
}

void close_data(RunState& state) {
  if (state.data_module) state.data_module->teardown(state.stage);
  state.data_module = nullptr;
}

}  // namespace lockstep::detail
