// The Trainer's options: their descriptions, the names of their values and values with a form of their own.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include <lockstep/base/error.h>
#include <lockstep/base/option_codec.h>
#include <lockstep/data/any_loader.h>
#include <lockstep/profilers/profilers.h>
#include <lockstep/train/batch_counts.h>
#include <lockstep/train/named_callbacks.h>
#include <lockstep/train/profiler_choice.h>
#include <lockstep/train/pytorch_profiler.h>
#include <lockstep/train/trainer_options.h>

namespace lockstep {

std::span<const OptionName<PartialWindow>> option_names(PartialWindow) {
  static constexpr OptionName<PartialWindow> kNames[] = {{"accumulated", PartialWindow::kAccumulated},
                                                         {"lightning", PartialWindow::kLightning},
                                                         {"carry", PartialWindow::kCarry}};
  return kNames;
}

std::span<const OptionName<ClipAlgorithm>> option_names(ClipAlgorithm) {
  static constexpr OptionName<ClipAlgorithm> kNames[] = {{"norm", ClipAlgorithm::kNorm},
                                                         {"value", ClipAlgorithm::kValue}};
  return kNames;
}

std::span<const OptionName<Deterministic>> option_names(Deterministic) {
  static constexpr OptionName<Deterministic> kNames[] = {
      {"false", Deterministic::kFalse}, {"true", Deterministic::kTrue}, {"warn", Deterministic::kWarn}};
  return kNames;
}

std::span<const OptionName<MatmulPrecision>> option_names(MatmulPrecision) {
  static constexpr OptionName<MatmulPrecision> kNames[] = {{"highest", MatmulPrecision::kHighest},
                                                           {"high", MatmulPrecision::kHigh},
                                                           {"medium", MatmulPrecision::kMedium}};
  return kNames;
}

std::span<const OptionName<Resume>> option_names(Resume) {
  static constexpr OptionName<Resume> kNames[] = {{"never", Resume::kNever}, {"auto", Resume::kAuto}};
  return kNames;
}

std::span<const OptionName<Verify>> option_names(Verify) {
  static constexpr OptionName<Verify> kNames[] = {{"all", Verify::kAll}, {"needed", Verify::kNeeded}};
  return kNames;
}

void describe(OptionVisitor& v, TrainerOptions& o) {
  v.field("accelerator", o.accelerator, "Kind of device: auto, cpu, or gpu");
  v.field("devices", o.devices, "Ranks on this node: auto, a number, or a list of devices");
  v.field("num_nodes", o.num_nodes, "Number of nodes", at_least(1));
  v.choice("strategy", o.strategy, strategy_choices(), "How the model is distributed over ranks");
  v.choice("precision", o.precision, precision_choices(),
           "Element types of the forward pass and of stored state");
  v.field("max_epochs", o.max_epochs,
          "Stop after this many epochs; -1: no limit; null: 1000 unless max_steps is set", at_least(-1));
  v.field("min_epochs", o.min_epochs, "Do not stop early before this many epochs", at_least(0));
  v.field("max_steps", o.max_steps, "Stop after this many optimizer steps; -1: no limit", at_least(-1));
  v.field("min_steps", o.min_steps, "Do not stop early before this many optimizer steps", at_least(0));
  v.field("max_time", o.max_time, "Stop when the run has taken so long (DD:HH:MM:SS, 90m, ...)",
          more_than(0));
  v.field("fast_dev_run", o.fast_dev_run,
          "Try every stage with 1 or n batches, without logger and checkpoint");
  v.field("limit_train_batches", o.limit_train_batches,
          "Batches of a training epoch: a number (1) or a fraction (1.0)");
  v.field("limit_val_batches", o.limit_val_batches,
          "Batches of a validation: a number or a fraction; 0: none");
  v.field("limit_test_batches", o.limit_test_batches, "Batches of a test: a number or a fraction");
  v.field("limit_predict_batches", o.limit_predict_batches,
          "Batches of a prediction: a number or a fraction");
  v.field("overfit_batches", o.overfit_batches,
          "Train and validate on so many batches, always the same; 0: no");
  v.field("val_check_interval", o.val_check_interval,
          "Validate after this fraction of an epoch (0.25), number of batches (100) or time (15m)");
  v.field("check_val_every_n_epoch", o.check_val_every_n_epoch,
          "Validate in every n-th epoch; null: val_check_interval counts across epochs", at_least(1));
  v.field("num_sanity_val_steps", o.num_sanity_val_steps,
          "Validation batches to try before training; -1: all", at_least(-1));
  v.field("reload_dataloaders_every_n_epochs", o.reload_dataloaders_every_n_epochs,
          "Ask a data module for its loaders again in every n-th epoch of fit; 0: never", at_least(0));
  v.field("cuda_graphs", o.cuda_graphs,
          "Record a training step once on the device, and replay it: no operator is issued by itself");
  v.field("expandable_segments", o.expandable_segments,
          "Let CUDA's allocator grow its segments, which wastes less memory");
  v.field("accumulate_grad_batches", o.accumulate_grad_batches,
          "Micro-batches per optimizer step; {0: 1, 4: 8}: by epoch");
  v.field("partial_window", o.partial_window,
          "Divisor of the gradients of a window that the end of an epoch cuts short");
  v.field("gradient_clip_val", o.gradient_clip_val, "Limit of the gradients; null or 0: no clipping",
          at_least(0));
  v.field("gradient_clip_algorithm", o.gradient_clip_algorithm,
          "Clip the norm of all gradients, or each value");
  v.field("sync_batchnorm", o.sync_batchnorm, "Let BatchNorm layers train on the batches of all ranks");
  v.field("detect_anomaly", o.detect_anomaly, "Fail at the first loss or gradient that is not finite");
  v.field("log_every_n_steps", o.log_every_n_steps, "Write step metrics every n optimizer steps; 0: never",
          at_least(0));
  v.field("logger", o.logger,
          "Where metrics go: true (csv), false, or csv, jsonl, mlflow, tensorboard, own (those in the code)");
  v.field("enable_autolog_hparams", o.enable_autolog_hparams, "Give the program's options to the loggers");
  v.field(
      "profiler", o.profiler,
      "Profiler of the run: simple, advanced, trace, pytorch (trace with LibTorch's operators and a GPU's "
      "kernels in some steps), own (that in the code) or none");
  v.field("enable_checkpointing", o.enable_checkpointing,
          "Write checkpoints of the latest epoch and, at the end of fit, last.ckpt");
  v.field("async_checkpoint", o.async_checkpoint, "Write checkpoints in the background of training");
  v.group("local_checkpoint", o.local_checkpoint, "Checkpoints in the memory of the nodes");
  v.field("enable_progress_bar", o.enable_progress_bar, "Show progress and the table of epochs");
  v.field("enable_model_summary", o.enable_model_summary, "Print a table of the model's parts");
  v.field("barebones", o.barebones, "Run nothing but the loop, to measure its speed");
  v.field("deterministic", o.deterministic, "Refuse, or warn of, algorithms that are not deterministic");
  v.field("benchmark", o.benchmark, "Let cuDNN try its algorithms; null: as LibTorch has it");
  v.field("matmul_precision", o.matmul_precision,
          "Rounding of products of float32 matrices: highest, high (TF32) or medium (bfloat16); null: as "
          "LibTorch has it");
  v.field("inference_mode", o.inference_mode,
          "Validate, test and predict in inference mode where one process runs");
  v.field("use_distributed_sampler", o.use_distributed_sampler, "Give each rank its part of the data");
  v.objects(
      "callbacks", o.named_callbacks, callback_classes(),
      "callbacks of the program's own are given in its code, or registered: ls::register_callback",
      "Callbacks beside those of the code: NAME, or [{class_path: NAME, init_args: {OPTION: VALUE}}, ...]");
  v.field("default_root_dir", o.default_root_dir, "Where runs/ is made; empty: the working directory");
}

void describe(OptionVisitor& v, RunOptions& o) {
  v.field("run_dir", o.run_dir,
          "The exact folder of this run, and trainer_2, ... in it of further Trainers; empty: "
          "runs/NAME/version_N");
  v.field("seed_everything", o.seed_everything, "Seed of all random generators and samplers");
  v.field("ckpt_path", o.ckpt_path, "Resume from this checkpoint: a folder, last, best or hpc");
  v.field("resume", o.resume, "Resume from the newest complete checkpoint of this program, if there is one");
  v.field("verify", o.verify, "How much of a checkpoint is checked against its checksums when it is loaded");
  v.field("init_weights", o.init_weights,
          "Start from the weights in this file (safetensors, .pt, .pth, .ckpt) or folder");
  v.field("save_weights", o.save_weights,
          "Write the weights to this file at the end of fit: safetensors, or .pt, .pth, .bin");
  v.group("fault", o.fault, "Test aid: break one rank on purpose");
}

int AccumulationSchedule::at(std::int64_t epoch) const {
  const auto next = by_epoch_.upper_bound(epoch);
  return next == by_epoch_.begin() ? 1 : std::prev(next)->second;
}

std::int64_t AccumulationSchedule::next_change(std::int64_t epoch) const {
  const auto next = by_epoch_.upper_bound(epoch);
  return next == by_epoch_.end() ? std::numeric_limits<std::int64_t>::max() : next->first;
}

Expected<AccumulationSchedule> AccumulationSchedule::parse(std::string_view text) {
  const Unexpected refused{OptionType<AccumulationSchedule>::accepted()};
  if (const auto number = OptionType<int>::parse(text)) {
    if (*number < 1) return refused;
    return AccumulationSchedule(*number);
  }
  if (text.starts_with('{') && text.ends_with('}')) text = text.substr(1, text.size() - 2);
  Steps by_epoch;
  for (const auto& item : detail::items_of({.text = std::string(text)})) {
    const std::string& pair = item.text;
    const auto colon = pair.find(':');
    if (colon == std::string::npos) return refused;
    const auto value = pair.find_first_not_of(' ', colon + 1);
    if (value == std::string::npos) return refused;
    const auto epoch = OptionType<std::int64_t>::parse(std::string_view(pair).substr(0, colon));
    const auto number = OptionType<int>::parse(std::string_view(pair).substr(value));
    if (!epoch || !number || *epoch < 0 || *number < 1) return refused;
    if (!by_epoch.emplace(*epoch, *number).second) return refused;
  }
  if (by_epoch.empty()) return refused;
  return AccumulationSchedule(std::move(by_epoch));
}

std::string AccumulationSchedule::print() const {
  if (is_constant()) return std::to_string(by_epoch_.begin()->second);
  std::string text;
  for (const auto& [epoch, number] : by_epoch_)
    text += (text.empty() ? "" : ", ") + std::to_string(epoch) + ": " + std::to_string(number);
  return "{" + text + "}";
}

Expected<FastDevRun> FastDevRun::parse(std::string_view text) {
  if (const auto batches = OptionType<int>::parse(text)) {
    if (*batches < 0) return Unexpected{OptionType<FastDevRun>::accepted()};
    return FastDevRun(*batches);
  }
  if (const auto one = OptionType<bool>::parse(text)) return FastDevRun(*one);
  return Unexpected{OptionType<FastDevRun>::accepted()};
}

std::string FastDevRun::print() const { return batches_ == 0 ? "false" : std::to_string(batches_); }

namespace {

constexpr std::string_view kOwnProfiler = "own";

constexpr std::string_view kPyTorchProfiler = "pytorch";

bool is_profiler_name(std::string_view text) {
  const auto names = profiler_names();
  return text == kPyTorchProfiler || std::ranges::find(names, text) != names.end();
}

}  // namespace

std::string OptionType<ProfilerChoice>::accepted() {
  std::string names;
  for (const auto& name : profiler_names()) names += name + ", ";
  return "one of " + names + std::string(kPyTorchProfiler) + ", own (that of the program's code) or none";
}

ProfilerChoice::ProfilerChoice(std::string name) : name_(std::move(name)) {
  if (is_profiler_name(name_)) return;
  throw ConfigError(
      "train",
      {.what = "profiler", .expected = OptionType<ProfilerChoice>::accepted(), .got = "\"" + name_ + "\""});
}

std::shared_ptr<Profiler> ProfilerChoice::get() const {
  if (profiler_ || name_.empty()) return profiler_;
  if (name_ == kPyTorchProfiler) return std::make_shared<PyTorchProfiler>();
  return make_profiler(name_);
}

Expected<ProfilerChoice> ProfilerChoice::parse(std::string_view text) {
  if (detail::same_name(text, "none") || detail::same_name(text, "null") || text.empty())
    return ProfilerChoice();
  if (!is_profiler_name(text) && text != kOwnProfiler)
    return Unexpected{OptionType<ProfilerChoice>::accepted()};
  ProfilerChoice choice;
  choice.name_ = text;
  return choice;
}

std::string ProfilerChoice::print() const {
  if (profiler_) return std::string(kOwnProfiler);
  return name_.empty() ? "none" : name_;
}

using std::chrono::milliseconds;

Expected<ValCheckInterval> ValCheckInterval::parse(std::string_view text) {
  const Unexpected refused{OptionType<ValCheckInterval>::accepted()};
  if (const auto batches = OptionType<std::int64_t>::parse(text)) {
    if (*batches < 1) return refused;
    return ValCheckInterval(*batches);
  }
  if (const auto fraction = OptionType<double>::parse(text)) {
    if (!(*fraction > 0 && *fraction <= 1)) return refused;
    return ValCheckInterval(*fraction);
  }
  if (const auto time = OptionType<milliseconds>::parse(text)) {
    if (time->count() <= 0) return refused;
    return ValCheckInterval(*time);
  }
  return refused;
}

std::string ValCheckInterval::print() const {
  if (const auto* batches = std::get_if<std::int64_t>(&value_)) return std::to_string(*batches);
  if (const auto* time = std::get_if<milliseconds>(&value_)) return OptionType<milliseconds>::print(*time);
  return OptionType<double>::print(std::get<double>(value_));  // 1.0, which is not 1
}

namespace {

constexpr double kMostCounted = 1e15;  // a double tells whole numbers below apart

// 1.0 is a fraction: all batches.
bool is_number_of_batches(double number) {
  return number > 1 && number <= kMostCounted && std::floor(number) == number;
}

}  // namespace

BatchLimit::BatchLimit(double fraction) : value_(fraction) {
  if (is_number_of_batches(fraction)) value_ = static_cast<std::int64_t>(fraction);
}

Expected<BatchLimit> BatchLimit::parse(std::string_view text) {
  if (const auto batches = OptionType<std::int64_t>::parse(text)) {
    if (*batches < 0) return Unexpected{OptionType<BatchLimit>::accepted()};
    return BatchLimit(*batches);
  }
  const auto number = OptionType<double>::parse(text);
  if (!number) return Unexpected{OptionType<BatchLimit>::accepted()};
  const BatchLimit limit(*number);
  const auto* fraction = std::get_if<double>(&limit.value_);
  if (fraction && !(*fraction >= 0 && *fraction <= 1)) return Unexpected{OptionType<BatchLimit>::accepted()};
  return limit;
}

bool BatchLimit::is_zero() const {
  return std::visit([](auto value) { return value == 0; }, value_);
}

std::string BatchLimit::print() const {
  if (const auto* batches = std::get_if<std::int64_t>(&value_)) return std::to_string(*batches);
  return OptionType<double>::print(std::get<double>(value_));  // 1.0, which is not 1
}

std::int64_t BatchLimit::apply(std::int64_t available, std::string_view option) const {
  const auto refuse = [&](std::string expected) {
    throw ConfigError("train", {.what = std::string(option),
                                .expected = std::move(expected),
                                .got = print(),
                                .where = "",
                                .hint = ""});
  };
  if (const auto* batches = std::get_if<std::int64_t>(&value_)) {
    if (*batches < 0) refuse(">= 0");
    return std::min(available, *batches);
  }
  const double fraction = std::get<double>(value_);
  if (!(fraction >= 0 && fraction <= 1)) refuse("a fraction in 0.0..1.0, or an integer");
  if (available == kUnknownLength) {
    if (fraction == 1 || fraction == 0) return fraction == 1 ? available : 0;
    refuse("1.0 or a number of batches, since the data do not say how many they have");
  }
  const auto batches = static_cast<std::int64_t>(static_cast<double>(available) * fraction);
  if (batches == 0 && fraction > 0 && available > 0) {
    refuse("at least one batch: >= " + std::to_string(1.0 / static_cast<double>(available)));
  }
  return batches;
}

}  // namespace lockstep
