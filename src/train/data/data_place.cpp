#include "train/data/data_place.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/shell_word.h>

namespace lockstep::detail {
namespace {

// The order of samples follows from the seed.
void adopt_seed(RunSetup& setup, const StateTree& place) {
  const auto saved = static_cast<std::uint64_t>(place.get<std::int64_t>("seed"));
  auto& seed = setup.options.run.seed_everything;
  if (seed && *seed != saved) {
    log_warning("seed_everything is " + std::to_string(*seed) + ", the checkpoint's was " +
                std::to_string(saved) + ": samples come in the checkpoint's order");
  }
  seed = saved;
}

// Checks a number from a checkpoint before it is multiplied or divided by.
std::int64_t checked(std::int64_t value, std::int64_t least, const std::string& name) {
  if (value >= least && value <= std::numeric_limits<int>::max()) return value;
  throw CheckpointError("train", {.what = "state " + name,
                                  .expected = "a number from " + std::to_string(least) + " to 2^31 - 1",
                                  .got = std::to_string(value)});
}

std::int64_t positive(const StateTree& place, const std::string& name) {
  return checked(place.get<std::int64_t>(name), 1, place.path() + "/" + name);
}

// Samples are those of the data set, but for samplers that divide it: they tell this rank's, rounded.
bool has_as_many_samples(const RunSetup& setup, const RunData& data, const StateTree& place) {
  const auto saved = place.get<std::int64_t>("num_samples"), now = data.train->num_samples();
  if (saved == now || data.train->is_dealt_out()) return saved == now;
  const auto world = static_cast<double>(setup.communicator().size());
  const auto saved_world = static_cast<double>(positive(place, "world_size"));
  const auto apart = static_cast<double>(saved) * saved_world - static_cast<double>(now) * world;
  return world != saved_world && std::abs(apart) < std::max(world, saved_world);
}

std::string samples_text(const RunData& data, std::int64_t samples, std::int64_t world) {
  const auto text = std::to_string(samples) + " samples";
  return data.train->is_dealt_out() ? text : text + " on each rank of " + std::to_string(world);
}

void check_data_set(const RunSetup& setup, const RunData& data, const StateTree& place,
                    const std::filesystem::path& checkpoint) {
  if (has_as_many_samples(setup, data, place)) return;
  throw CheckpointError(
      "train",
      {.what = "the training data are not those of checkpoint " + checkpoint.string(),
       .expected = samples_text(data, place.get<std::int64_t>("num_samples"), positive(place, "world_size")),
       .got = samples_text(data, data.train->num_samples(), setup.communicator().size()),
       .hint = "a run goes on with the samples that it began with; to train on "
               "others, start from its weights: --init_weights " +
               shell_word(checkpoint.string())});
}

struct SavedPlace {
  std::int64_t batch;   // samples of all ranks together
  std::int64_t window;  // micro-batches
  std::int64_t batches_of_epoch;
  std::int64_t world_size;
};

SavedPlace saved_place(const StateTree& place) {
  const auto world_size = positive(place, "world_size");
  return {.batch = checked(world_size * positive(place, "batch_size"), 1, place.path() + "/batch_size"),
          .window = positive(place, "accumulate_grad_batches"),
          .batches_of_epoch = place.get<std::int64_t>("num_training_batches"),
          .world_size = world_size};
}

// Whether the checkpoint knows the length of a stream from having read it to its end. Older checkpoints have
// 0, and others have a limit's value.
bool knows_its_end(const FitProgress& progress, const SavedPlace& saved) {
  return progress.num_training_batches > 0 && progress.num_training_batches < saved.batches_of_epoch;
}

void warn_of_other_shards(const RunSetup& setup, const RunData& data, const SavedPlace& saved) {
  if (data.train->num_samples() != kUnknownLength || !setup.is_global_zero()) return;
  log_warning("a stream goes on in the midst of an epoch on " + std::to_string(setup.communicator().size()) +
              " ranks, where there were " + std::to_string(saved.world_size) +
              ": ranks read other shards now, and samples of this epoch may come again or be left out");
}

bool knows_length(const RunSetup& setup, const RunData& data) {
  return data.train->num_batches(setup.shard(/*pad=*/true)) != kUnknownLength;
}

// Older checkpoints do not contain the open window: it follows from the counters.
void find_window(const RunSetup& setup, const RunData& data, FitProgress& progress, const SavedPlace& saved) {
  if (progress.window.length > 0) return;
  const bool carries = setup.options.partial_window == PartialWindow::kCarry;
  const auto before = carries ? progress.batches_before % saved.window : 0;
  const auto done = (before + progress.batches) % saved.window;
  const MicroBatch opened{
      .epoch = progress.epoch, .index = progress.batches - done, .epoch_batches = saved.batches_of_epoch};
  const AccumulationSchedule schedule(static_cast<int>(saved.window));
  const WindowRule rule(schedule, setup.options.partial_window, knows_length(setup, data));
  const bool is_over = !carries && progress.batches == saved.batches_of_epoch;
  progress.window = {};
  if (!is_over)
    progress.window = {.done = done, .length = std::max(done + 1, rule.holding({}, opened).length)};
}

// Goes back to the first micro-batch of the open window: its gradients do not fit other micro-batches, or
// fewer than the window was opened for.
void begin_window_anew(FitProgress& progress, const SavedPlace& saved) {
  const auto done = std::min(progress.batches, std::exchange(progress.window, {}).done);
  if (done == 0) return;
  progress.samples -= done * saved.batch;
  progress.batches -= done;
  progress.phase = FitPhase::kBatches;
  progress.validation = {};
}

void keep_window(const RunSetup& setup, const RunData& data, FitProgress& progress, const SavedPlace& saved) {
  const MicroBatch next{
      .epoch = progress.epoch, .index = progress.batches, .epoch_batches = progress.num_training_batches};
  if (!window_rule(setup, knows_length(setup, data)).can_complete(progress.window, next))
    begin_window_anew(progress, saved);
}

std::int64_t batches_in_terms_of(std::int64_t batch, const RunSetup& setup, const FitProgress& progress,
                                 const SavedPlace& saved) {
  const auto samples = progress.batches * saved.batch;
  if (samples % batch == 0) return samples / batch;
  const auto world = std::int64_t{setup.communicator().size()};
  throw CheckpointError(
      "train",
      {.what = "no batch begins where the checkpoint was taken, at sample " + std::to_string(samples),
       .expected = "a batch of all ranks that divides it",
       .got = std::to_string(world) + " ranks of " + std::to_string(batch / world) + " samples",
       .hint = "the checkpoint's batch was " + std::to_string(saved.batch) + " samples; take a divisor"});
}

void note_shorter_epoch(FitProgress& progress, bool was_over) {
  progress.epoch_became_shorter =
      !was_over && progress.phase == FitPhase::kBatches && progress.batches >= progress.num_training_batches;
}

// A window that began in an earlier epoch cannot be begun again.
void refuse_carried_window(const RunSetup& setup, const FitProgress& progress) {
  const bool began_here = progress.window.done <= progress.batches;
  const bool carries = setup.options.partial_window == PartialWindow::kCarry;
  if (!is_inside_window(progress) || (began_here && !carries)) return;
  throw CheckpointError(
      "train", {.what = "the checkpoint was taken inside of a window that runs on across epochs",
                .expected = "the number of ranks and the batch size of the checkpoint",
                .got = "others",
                .hint = "partial_window = carry, which strategy deepspeed sets, keeps windows open"});
}

}  // namespace

bool is_inside_window(const FitProgress& progress) { return progress.window.done > 0; }

std::int64_t num_training_batches(const RunSetup& setup, const RunData& data) {
  const bool is_overfit = !setup.options.overfit_batches.is_zero();
  return setup.options.limit_train_batches.apply(data.train->num_batches(setup.shard(/*pad=*/true)),
                                                 is_overfit ? "overfit_batches" : "limit_train_batches");
}

void check_end_of_data(const RunSetup& setup, const FitProgress& progress, bool is_stream) {
  const auto place = "epoch " + std::to_string(progress.epoch);
  if (progress.batches == 0) {
    const auto ranks = setup.communicator().size();
    throw DataError("train", {.what = "the training data have no batch",
                              .expected = "one at least on each of " + std::to_string(ranks) + " ranks",
                              .got = ranks == 1 ? "none" : "none on one of them, or on more",
                              .where = place,
                              .hint = "is a shard empty, or does drop_last leave out the only batch?"});
  }
  if (is_stream) return;
  throw DataError("train", {.what = "the training data end before the length that their loader told",
                            .expected = std::to_string(progress.num_training_batches) + " batches",
                            .got = std::to_string(progress.batches),
                            .where = place,
                            .hint = "size() of a stream is the number of items that it gives"});
}

StateTree data_place_of(const RunSetup& setup, const RunData& data, const FitProgress& progress) {
  StateTree place;
  place.set("num_samples", data.train->num_samples());
  place.set("batch_size", data.train->batch_size());
  place.set("world_size", std::int64_t{setup.communicator().size()});
  place.set("accumulate_grad_batches", window_length(setup, progress));
  place.set("num_training_batches", num_training_batches(setup, data));
  place.set("seed", static_cast<std::int64_t>(setup.options.run.seed_everything.value_or(0)));
  return place;
}

void adopt_data_place(RunSetup& setup, const RunData& data, FitProgress& progress, const StateTree& place,
                      const std::filesystem::path& checkpoint) {
  check_data_set(setup, data, place, checkpoint);
  const auto saved = saved_place(place);
  checked(progress.batches, 0, "loops/batches");
  const auto world = std::int64_t{setup.communicator().size()};
  const auto batch = world * data.train->batch_size();
  const bool same_batches = world == saved.world_size && batch == saved.batch;
  adopt_seed(setup, place);
  find_window(setup, data, progress, saved);
  const bool knows_end = knows_its_end(progress, saved);
  const bool was_over =
      progress.batches >= (knows_end ? progress.num_training_batches : saved.batches_of_epoch);
  if (!knows_end) progress.num_training_batches = num_training_batches(setup, data);
  if (same_batches) {
    keep_window(setup, data, progress, saved);
    return note_shorter_epoch(progress, was_over);
  }
  refuse_carried_window(setup, progress);
  if (progress.batches == 0) return;
  progress.validation = {};
  const bool knows_to_be_over = knows_end && progress.batches == progress.num_training_batches;
  if (knows_to_be_over || progress.batches == saved.batches_of_epoch) {
    if (!knows_to_be_over) progress.batches = num_training_batches(setup, data);
    progress.window = {};
    return;
  }
  progress.num_training_batches = num_training_batches(setup, data);
  if (world != saved.world_size) warn_of_other_shards(setup, data, saved);
  begin_window_anew(progress, saved);
  progress.batches = batches_in_terms_of(batch, setup, progress, saved);
  note_shorter_epoch(progress, was_over);
}

StateTree own_of(const RunSetup& setup, const Checkpoint& checkpoint) {
  return checkpoint.own(setup.communicator().rank() % checkpoint.info().world_size);
}

namespace {

// The schedule as it will be once a pending change takes effect in the next epoch.
AccumulationSchedule schedule_to_come(const RunSetup& setup, const FitProgress& progress) {
  const auto& now = setup.options.accumulate_grad_batches;
  if (!setup.accumulation.next) return now;
  auto epoch = progress.epoch;
  AccumulationSchedule::Steps steps{{0, now.at(epoch)}};
  for (++epoch; epoch != std::numeric_limits<std::int64_t>::max();
       epoch = setup.accumulation.next->next_change(epoch))
    steps[epoch] = setup.accumulation.next->at(epoch);
  return AccumulationSchedule(std::move(steps));
}

// A batch whose optimizer has stepped counts as done.
std::int64_t steps_to_come(const RunSetup& setup, const FitProgress& progress, std::int64_t batches,
                           std::int64_t epochs) {
  const bool is_done =
      progress.phase == FitPhase::kInBatch && progress.global_step != progress.steps_before_batch;
  const auto next = progress.batches + (is_done ? 1 : 0);
  const auto schedule = schedule_to_come(setup, progress);
  const WindowRule rule(schedule, setup.options.partial_window, /*knows_end=*/true);
  return rule.steps(is_done ? OpenWindow{} : progress.window,
                    {.epoch = progress.epoch, .index = next, .epoch_batches = batches}, epochs);
}

}  // namespace

std::optional<std::int64_t> estimated_steps(const RunSetup& setup, const RunData& data,
                                            const FitProgress& progress) {
  if (setup.stage != Stage::kFit && setup.stage != Stage::kSanityCheck) {
    throw ConfigError("train", {.what = "estimated_stepping_batches()",
                                .expected = "a hook of fit",
                                .got = "stage " + std::string(stage_name(setup.stage))});
  }
  const auto max_steps = setup.options.max_steps;
  const auto max_epochs = *setup.options.max_epochs;
  const auto limit = max_steps >= 0 ? std::optional(max_steps) : std::nullopt;
  const auto batches = num_training_batches(setup, data);
  if (max_epochs < 0 || batches == kUnknownLength) return limit;
  std::int64_t steps = 0;
  if (__builtin_add_overflow(progress.global_step, steps_to_come(setup, progress, batches, max_epochs),
                             &steps))
    steps = std::numeric_limits<std::int64_t>::max();
  return limit ? std::min(*limit, steps) : steps;
}

}  // namespace lockstep::detail
