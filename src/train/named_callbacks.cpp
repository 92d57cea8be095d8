#include <lockstep/train/named_callbacks.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>
#include <lockstep/train/callbacks/early_stopping.h>
#include <lockstep/train/callbacks/failure_checkpoints.h>
#include <lockstep/train/callbacks/finetuning.h>
#include <lockstep/train/callbacks/gradient_accumulation_scheduler.h>
#include <lockstep/train/callbacks/model_checkpoint.h>
#include <lockstep/train/callbacks/model_pruning.h>
#include <lockstep/train/callbacks/model_summary.h>
#include <lockstep/train/callbacks/monitors.h>
#include <lockstep/train/callbacks/prediction_writer.h>
#include <lockstep/train/callbacks/progress_bar.h>
#include <lockstep/train/callbacks/timer.h>
#include <lockstep/train/callbacks/weight_averaging.h>
#include <lockstep/train/tuner.h>

#include "train/callbacks/named_options.h"

namespace lockstep {
namespace {

using Others = std::vector<OtherOption>;

template <class Object, Described Options>
ObjectClass row(std::string name, Others others = {}) {
  return object_class<Callback, Options>(
      std::move(name), [](const Options& options) { return std::make_shared<Object>(options); },
      std::move(others));
}

ObjectClass unavailable(std::string name, std::string reason) {
  return {.name = std::move(name), .unavailable = std::move(reason)};
}

constexpr const char* kFunction = "it is a function, which only the program's code can give";

OtherOption function(std::string name) { return {std::move(name), "", kFunction}; }

OtherOption device() { return {"device", "cpu", "averages are on the device of the weights"}; }

ObjectClass accumulation_row() {
  return object_class<Callback, AccumulationOptions>(
      "GradientAccumulationScheduler", [](const AccumulationOptions& options) {
        return std::make_shared<GradientAccumulationScheduler>(options.scheduling.by_epoch());
      });
}

ObjectClass summary_row() {
  return object_class<Callback, SummaryOptions>("ModelSummary", [](const SummaryOptions& options) {
    return std::make_shared<ModelSummary>(options.max_depth);
  });
}

ObjectClass rate_finder_row() {
  return object_class<Callback, RateFinderOptions>(
      "LearningRateFinder",
      [](const RateFinderOptions& options) { return std::make_shared<LearningRateFinder>(options.search); },
      {{"attr_name", "", "the optimizer that is at work gets the rate"}});
}

const Others kBarOptions{{"process_position", "0", "there is one bar"},
                         {"theme", "", "its colours are fixed"},
                         {"console_kwargs", "", "there is no console of rich's"}};

std::vector<ObjectClass> classes_of_library() {
  return {
      row<ModelCheckpoint, ModelCheckpointOptions>("ModelCheckpoint"),
      row<EarlyStopping, EarlyStoppingOptions>("EarlyStopping",
                                               {{"log_rank_zero_only", "false", "rank 0 speaks for all"}}),
      row<LearningRateMonitor, LearningRateMonitorOptions>("LearningRateMonitor"),
      row<Timer, TimerOptions>("Timer"),
      summary_row(),
      accumulation_row(),
      row<WeightAveraging, WeightAveragingOptions>("WeightAveraging", {device(), function("multi_avg_fn")}),
      row<EMAWeightAveraging, EMAWeightAveragingOptions>("EMAWeightAveraging", {device()}),
      row<StochasticWeightAveraging, StochasticWeightAveragingOptions>("StochasticWeightAveraging",
                                                                       {device(), function("avg_fn")}),
      row<BackboneFinetuning, BackboneFinetuningOptions>(
          "BackboneFinetuning",
          {{"lambda_func", "lightning.pytorch.callbacks.finetuning.multiplicative", kFunction},
           function("backbone"),
           {"initial_denom_lr", "10.0", "backbone_initial_ratio_lr divides the rate"}}),
      row<ModelPruning, ModelPruningOptions>("ModelPruning"),
      row<DeviceStatsMonitor, DeviceStatsMonitorOptions>("DeviceStatsMonitor"),
      row<ThroughputMonitor, ThroughputMonitorOptions>("ThroughputMonitor",
                                                       {function("batch_size_fn"), function("length_fn")}),
      row<SpikeDetection, SpikeDetectionOptions>("SpikeDetection"),
      row<PredictionWriter, PredictionWriterOptions>("PredictionWriter"),
      row<LocalCheckpoint, LocalCheckpointOptions>("LocalCheckpoint"),
      row<OnExceptionCheckpoint, OnExceptionCheckpointOptions>("OnExceptionCheckpoint"),
      row<TQDMProgressBar, ProgressBarOptions>("TQDMProgressBar", kBarOptions),
      row<RichProgressBar, ProgressBarOptions>("RichProgressBar", kBarOptions),
      row<BatchSizeFinder, ScaleBatchSizeOptions>(
          "BatchSizeFinder",
          {{"batch_arg_name", "batch_size", "the data module's set_batch_size() gets it"}}),
      rate_finder_row(),
      unavailable("RichModelSummary", "name ModelSummary"),
      unavailable("LambdaCallback", "its hooks are functions, which only the program's code can give"),
      unavailable("BasePredictionWriter", "name PredictionWriter, or register a class that derives from it"),
      unavailable("BaseFinetuning", "name BackboneFinetuning, or register a class that derives from it")};
}

std::vector<ObjectClass>& known_classes() {
  static std::vector<ObjectClass> classes = classes_of_library();
  return classes;
}

ConfigError wrong_class_name(const std::string& what, const std::string& expected, const std::string& name,
                             const std::string& hint = {}) {
  return {"train", {.what = what, .expected = expected, .got = "\"" + name + "\"", .hint = hint}};
}

// What was wrong with a class that a program has registered, while nothing was there to catch it.
std::optional<ConfigError>& refused_registration() {
  static std::optional<ConfigError> refused;
  return refused;
}

const ObjectClass& class_named(const std::string& name) {
  const auto classes = callback_classes();
  const auto found = std::ranges::find(classes, name, &ObjectClass::name);
  if (found != classes.end() && found->make) return *found;
  std::vector<std::string> names;
  for (const auto& one : classes) {
    if (one.make) names.push_back(one.name);
  }
  throw wrong_class_name("named_callbacks", detail::one_of(names), name,
                         did_you_mean(nearest_name(name, names)));
}

std::optional<ConfigError> why_not_registered(const ObjectClass& callback) {
  constexpr const char* kWhat = "register_callback";
  if (std::ranges::count(known_classes(), callback.name, &ObjectClass::name) > 0)
    return wrong_class_name(kWhat, "a name that no other callback has", callback.name);
  const bool is_word = callback.name.find_first_of(" \t\r\n,[]{}\"'#") == std::string::npos;
  if (!callback.name.empty() && is_word) return std::nullopt;
  return wrong_class_name(kWhat, "a word that can stand in a file, such as my.module.Pace", callback.name);
}

}  // namespace

std::span<const ObjectClass> callback_classes() {
  if (const auto refused = std::exchange(refused_registration(), std::nullopt)) throw ConfigError(*refused);
  return known_classes();
}

void register_callback(ObjectClass callback) {
  auto refused = why_not_registered(callback);
  if (!refused) return known_classes().push_back(std::move(callback));
  if (!refused_registration()) refused_registration() = std::move(refused);
}

std::vector<std::shared_ptr<Callback>> make_callbacks(std::span<const NamedObject> named) {
  std::vector<std::shared_ptr<Callback>> callbacks;
  for (const auto& [name, options] : named)
    callbacks.push_back(std::static_pointer_cast<Callback>(class_named(name).make(options)));
  return callbacks;
}

}  // namespace lockstep
