#include "train/callbacks/deepspeed_reports.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <utility>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/device/cpu_stats.h>
#include <lockstep/loggers/loggers.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/precision/grad_scaler.h>
#include <lockstep/train/module.h>
#include <lockstep/train/trainer_options.h>

#include "base/format.h"
#include "loggers/make_logger.h"

namespace lockstep::detail {
namespace {

// In bytes. The kernel notes the peak of a count that it keeps less exactly than that of now.
struct ResidentMemory {
  std::int64_t now;
  std::int64_t peak;
};

ResidentMemory resident_memory() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  const auto now = resident * ::sysconf(_SC_PAGESIZE);
  return {.now = now, .peak = std::max(now, peak_rss_bytes())};
}

// In GB of 2^30 bytes, with two digits behind the point.
std::string gigabytes(std::int64_t bytes) { return two_digits(static_cast<double>(bytes) / (1 << 30)); }

constexpr std::int64_t kFirstMeasuredStep = 2;  // DeepSpeed's start_step

double in_milliseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// A list as Python prints it.
template <class Value>
std::string of_groups(const Optimizer& optimizer, const Value& value) {
  std::vector<std::string> texts;
  for (const auto& group : optimizer.groups()) texts.push_back(value(group));
  return "[" + lockstep::joined(texts) + "]";
}

std::string momentum_text(const Optimizer::Group& group) {
  if (!group.betas) return number_text(group.momentum.value_or(0));
  return "[" + number_text(group.betas->front()) + ", " + number_text(group.betas->back()) + "]";
}

// The flops profiler shows the times, too.
bool shows_times(const DeepSpeedConfig& config) {
  return config.wall_clock_breakdown || config.flops_profiler.enabled;
}

}  // namespace

bool DeepSpeedReports::are_wanted(const DeepSpeedConfig& config) {
  return config.steps_per_print || shows_times(config) || config.tensorboard.enabled ||
         config.csv_monitor.enabled || config.dump_state;
}

DeepSpeedReports::DeepSpeedReports(const DeepSpeedConfig& config, std::function<const GradScaler*()> scaler)
    : config_(config), scaler_(std::move(scaler)), flops_(config.flops_profiler) {
  const auto& tensorboard = config.tensorboard;
  // The logger writes to the folder of the job itself, without a version below it.
  if (tensorboard.enabled)
    monitors_.push_back(std::make_unique<TensorBoardLogger>(TensorBoardOptions{
        .save_dir = tensorboard.output_path, .name = tensorboard.job_name, .version = "."}));
  const auto& csv = config.csv_monitor;
  if (csv.enabled) monitors_.push_back(std::make_unique<CsvMonitor>(csv.output_path / csv.job_name));
}

void DeepSpeedReports::on_train_start(TrainContext& context) {
  last_step_ = context.global_step();
  flops_.begin_run(last_step_);
  if (config_.dump_state) context.print("DeepSpeedEngine configuration:\n" + to_json(config_));
}

void DeepSpeedReports::on_train_batch_start(StepContext& step) {
  batch_size_ = std::max(batch_size_, step.batch_size());
  flops_.begin(step);
  clock_.enter(StepPhase::kForward);
}
void DeepSpeedReports::on_before_backward(StepContext&, const at::Tensor&) {
  clock_.enter(StepPhase::kBackward);
  flops_.end_forward();
}
void DeepSpeedReports::on_after_backward(StepContext&) { clock_.enter(StepPhase::kForward); }
void DeepSpeedReports::on_before_optimizer_step(StepContext&) { clock_.enter(StepPhase::kStep); }

void DeepSpeedReports::on_train_batch_end(StepContext& step, const TrainOutput&) {
  clock_.leave();
  const auto micro = clock_.take();
  global_ += micro;
  throughput_.current += micro.sum();
  flops_.end(step, micro);
  if (shows_times(config_)) print_times(step, micro, "_microstep");
  const auto steps_before = std::exchange(last_step_, step.global_step());
  if (steps_before != step.global_step()) end_step(step, steps_before);
}

void DeepSpeedReports::end_step(StepContext& step, std::int64_t steps_before) {
  if (++throughput_.steps > kFirstMeasuredStep) throughput_.total += throughput_.current;
  // A batch of manual optimisation may take several steps.
  const auto every = config_.steps_per_print.value_or(0);
  const bool is_due = every > 0 && step.global_step() / every > steps_before / every;
  if (is_due) print_progress(step);
  if (is_due && throughput_.total.count() > 0 && config_.timers.throughput.enabled) print_throughput(step);
  if (shows_times(config_)) print_times(step, global_, "");
  if (!monitors_.empty()) write_metrics(step);
  throughput_.current = {};
  global_ = {};
}

void DeepSpeedReports::print_progress(const StepContext& step) const {
  const auto* const scaler = scaler_();
  const auto& optimizer = *step.optimizers().front().optimizer;
  step.print("[Rank 0] step=" + std::to_string(step.global_step()) +
             ", skipped=" + std::to_string(scaler == nullptr ? 0 : scaler->total_skipped_steps()) +
             ", lr=" + of_groups(optimizer, [](const auto& group) { return number_text(group.lr); }) +
             ", mom=" + of_groups(optimizer, &momentum_text));
}

void DeepSpeedReports::print_throughput(const StepContext& step) const {
  const auto samples = static_cast<double>(samples_of_step(step));
  const auto per_second = [&](double steps, Clock::duration time) {
    return number_text(samples * steps * 1000 / in_milliseconds(time));
  };
  const auto measured = static_cast<double>(throughput_.steps - kFirstMeasuredStep);
  const auto memory = resident_memory();
  step.print("epoch=" + std::to_string(step.current_epoch()) + "/micro_step=" +
             std::to_string(step.batch_idx() + 1) + "/global_step=" + std::to_string(step.global_step()) +
             ", RunningAvgSamplesPerSec=" + per_second(measured, throughput_.total) + ", CurrSamplesPerSec=" +
             per_second(1, throughput_.current) + ", MemAllocated=" + gigabytes(memory.now) +
             "GB, MaxMemAllocated=" + gigabytes(memory.peak) + "GB");
}

void DeepSpeedReports::print_times(const TrainContext& context, const Times& times,
                                   const char* suffix) const {
  constexpr const char* kNames[] = {"fwd", "bwd", "step"};
  std::string line = "[Rank 0] time (ms)";
  for (std::size_t phase = 0; phase < times.size(); ++phase) {
    line += std::string(" | ") + kNames[phase] + suffix + ": " + two_digits(in_milliseconds(times[phase]));
  }
  context.print(line);
}

void DeepSpeedReports::write_metrics(const StepContext& step) {
  std::vector<Metric> metrics{{"Train/Samples/lr", step.optimizers().front().optimizer->groups().front().lr}};
  if (const auto* const scaler = scaler_(); scaler != nullptr && config_.fp16.enabled.value)
    metrics.emplace_back("Train/Samples/loss_scale", scaler->get_scale());
  if (shows_times(config_)) {
    constexpr const char* kNames[] = {"forward", "backward", "step"};
    for (std::size_t phase = 0; phase < global_.size(); ++phase)
      metrics.emplace_back(std::string("Train/Samples/elapsed_time_ms_") + kNames[phase],
                           in_milliseconds(global_[phase]));
  }
  const bool is_constant = step.options().accumulate_grad_batches.is_constant();
  const auto samples = is_constant ? step.global_step() * samples_of_step(step) : step.samples_seen();
  for (const auto& monitor : monitors_) monitor->log_metrics(metrics, step.current_epoch(), samples);
}

std::int64_t DeepSpeedReports::samples_of_step(const StepContext& step) const {
  return batch_size_ * step.world_size() * step.options().accumulate_grad_batches.at(step.current_epoch());
}

void DeepSpeedReports::finalize(const char* status) {
  flops_.stop();
  for (const auto& monitor : monitors_) monitor->finalize(status);
}

void DeepSpeedReports::on_train_end(TrainContext&) { finalize("success"); }
void DeepSpeedReports::on_exception(TrainContext&, const std::exception&) { finalize("failed"); }

namespace {

double percent_in_use() {
  for (const auto& [name, percent] : CpuStats().read()) {
    if (name == "cpu_vm_percent") return percent;
  }
  return 0;
}

void print_memory(const TrainContext& context, const char* when) {
  struct sysinfo machine = {};
  ::sysinfo(&machine);
  const auto percent = percent_in_use();
  const auto used = static_cast<double>(machine.totalram) * machine.mem_unit * percent / 100;
  const auto memory = resident_memory();
  context.print(std::string("Engine ") + when + "\nMA " + gigabytes(memory.now) + " GB         Max_MA " +
                gigabytes(memory.peak) + " GB\nCPU Virtual Memory:  used = " +
                gigabytes(static_cast<std::int64_t>(used)) + " GB, percent = " + number_text(percent) + "%");
}

}  // namespace

void MemoryBreakdown::on_train_batch_start(StepContext& step) { print_memory(step, "before forward"); }

void MemoryBreakdown::on_before_backward(StepContext& step, const at::Tensor&) {
  print_memory(step, "after forward");
  print_memory(step, "before backward");
}

void MemoryBreakdown::on_after_backward(StepContext& step) { print_memory(step, "after backward"); }

void MemoryBreakdown::on_before_optimizer_step(StepContext& step) {
  print_memory(step, "before step");
  is_in_step_ = true;
}

void MemoryBreakdown::on_train_batch_end(StepContext& step, const TrainOutput&) {
  if (std::exchange(is_in_step_, false)) print_memory(step, "after step");
}

namespace {

constexpr std::size_t kMostKept = 10'000;  // latencies of a row

// DeepSpeed's convert_size.
std::string size_text(std::int64_t bytes) {
  if (bytes == 0) return "0B";
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  auto text = number_text(std::round(size * 100) / 100);
  if (text.find('.') == std::string::npos) text += ".0";  // as Python prints a float
  return text + " " + kUnits[unit];
}

// The mean without the smallest and the largest tenth.
double trimmed_mean(std::vector<float> values) {
  std::ranges::sort(values);
  const auto cut = static_cast<std::ptrdiff_t>(std::lround(static_cast<double>(values.size()) * 0.1));
  const auto begin = values.begin() + cut, end = values.end() - cut;
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

struct Bandwidth {
  double algorithm_gbps;
  double bus_gbps;
};

// DeepSpeed's calc_bw_log, after NCCL's tests.
Bandwidth bandwidth(const std::string& name, std::int64_t bytes, double milliseconds, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  const double gbps = static_cast<double>(bytes) * 8 / (milliseconds * 1e6);
  if (name == "all_gather" || name == "reduce_scatter") return {gbps * ranks, gbps * ranks * share};
  if (name == "all_reduce") return {2 * gbps, 2 * gbps * share};
  if (name == "all_to_all") return {gbps, gbps * share};
  return {gbps, gbps};
}

std::string padded(std::string text) {
  text.resize(std::max<std::size_t>(text.size(), 20), ' ');
  return text;
}

template <class... Texts>
std::string table_line(const Texts&... texts) {
  std::string line = (padded(texts) + ...);
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::vector<bool> wanted_kinds(const deepspeed::CommsLogger& options) {
  std::vector<bool> wanted;
  for (const std::string name : collective_names())
    wanted.push_back(options.prof_all || std::ranges::find(options.prof_ops, name) != options.prof_ops.end());
  return wanted;
}

}  // namespace

CommsLog::CommsLog(deepspeed::CommsLogger options)
    : options_(std::move(options)), counts_(wanted_kinds(options_)) {
  for (const auto& name : options_.prof_ops) {
    if (std::ranges::find(collective_names(), name) != collective_names().end()) continue;
    const std::vector<std::string> names(collective_names().begin(), collective_names().end());
    throw ConfigError("deepspeed", {.what = "comms_logger.prof_ops",
                                    .expected = "names out of " + lockstep::joined(names),
                                    .got = '"' + name + '"'});
  }
}

void CommsLog::on_train_start(TrainContext&) { scope_.emplace(static_cast<CollectiveObserver&>(*this)); }

void CommsLog::on_collective(const CollectiveEvent& event) noexcept {
  if (!counts_[event.kind]) return;
  const std::chrono::duration<double, std::milli> time = event.end - event.begin;
  const std::lock_guard lock(mutex_);
  calls_.push_back({.kind = event.kind, .bytes = event.bytes, .milliseconds = time.count()});
}

void CommsLog::take(const TrainContext& context) {
  std::vector<Call> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }
  for (const auto& [kind, bytes, milliseconds] : calls) {
    const std::string name = collective_names()[kind];
    auto& row = rows_[name][bytes];
    if (row.latest_ms.size() < kMostKept) {
      row.latest_ms.push_back(static_cast<float>(milliseconds));
    } else {
      row.latest_ms[static_cast<std::size_t>(row.count) % kMostKept] = static_cast<float>(milliseconds);
    }
    ++row.count;
    row.total_ms += milliseconds;
    if (!options_.verbose) continue;
    const auto [algorithm, bus] = bandwidth(name, bytes, milliseconds, context.world_size());
    context.print("[Rank 0] comm op: " + name + " | time (ms): " + two_digits(milliseconds) +
                  " | msg size: " + size_text(bytes) + " | algbw (Gbps): " + two_digits(algorithm) +
                  " | busbw (Gbps): " + two_digits(bus));
  }
}

void CommsLog::print_table(const TrainContext& context) const {
  context.print(table_line("Comm. Op", "Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)",
                           "tput_avg (Gbps)", "busbw_avg (Gbps)"));
  for (const auto& [name, sizes] : rows_) {
    context.print(name);
    for (const auto& [bytes, row] : sizes) {
      const auto mean = trimmed_mean(row.latest_ms);
      const auto [algorithm, bus] = bandwidth(name, bytes, mean, context.world_size());
      context.print(table_line(" ", size_text(bytes), std::to_string(row.count), two_digits(row.total_ms),
                               two_digits(mean), two_digits(algorithm), two_digits(bus)));
    }
  }
}

void CommsLog::on_train_batch_end(StepContext& step, const TrainOutput&) { take(step); }

void CommsLog::on_train_end(TrainContext& context) {
  scope_.reset();
  take(context);
  print_table(context);
}

void CommsLog::on_exception(TrainContext&, const std::exception&) { scope_.reset(); }

}  // namespace lockstep::detail
