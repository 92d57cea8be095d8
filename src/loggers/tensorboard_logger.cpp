// TensorBoardLogger: event files for TensorBoard, in the folders that Lightning makes for them.
#include <lockstep/loggers/loggers.h>

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>

#include <lockstep/loggers/logger.h>

#include "base/system.h"
#include "loggers/log_records.h"
#include "loggers/logger_files.h"
#include "loggers/tensorboard_events.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// TensorBoard reads a folder's files in the order of their names, which is that of time.
std::string event_file_name() {
  static std::atomic<int> counter{0};
  std::array<char, 32> time{};
  std::snprintf(time.data(), time.size(), "%010lld", static_cast<long long>(seconds_since_1970()));
  return std::string("events.out.tfevents.") + time.data() + "." + detail::host_name() + "." +
         std::to_string(::getpid()) + "." + std::to_string(counter++);
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

void describe(OptionVisitor& v, TensorBoardOptions& o) {
  v.field("save_dir", o.save_dir, "Folder for tensorboard --logdir");
  v.field("name", o.name, "Name of the experiment; empty: no folder for it");
  v.field("version", o.version, "A number, or the name of the run's folder; empty: the next number");
  v.field("sub_dir", o.sub_dir, "Folder within the run's folder");
  v.field("prefix", o.prefix, "Prefix of metric names, followed by a dash");
  v.field("default_hp_metric", o.default_hp_metric, "Log hp_metric = -1 with hyper-parameters");
  v.field("flush_every_n_rows", o.flush_every_n_rows, "Rows that are written at once", at_least(1));
}

struct TensorBoardLogger::State {
  explicit State(TensorBoardOptions given)
      : options(std::move(given)), schedule(options.flush_every_n_rows) {}

  const std::string& claim() {
    if (claimed.empty()) {
      claimed = options.version;
      if (claimed.empty()) claimed = std::to_string(detail::claim_version(options.save_dir / options.name));
    }
    return claimed;
  }

  fs::path folder() {
    const auto& version = claim();
    const auto run = options.save_dir / options.name / (is_number(version) ? "version_" + version : version);
    return options.sub_dir.empty() ? run : run / options.sub_dir;
  }

  /// What a warning names.
  fs::path place() { return claimed.empty() ? options.save_dir : folder(); }

  void add(const std::string& event) { records += detail::tfrecord(event); }

  bool pending() const { return !records.empty() || hparams.changed() || (file && file->pending()); }

  void write() {
    if (!file) {
      file.emplace(folder() / event_file_name());
      file->append(detail::tfrecord(detail::file_version_event(seconds_since_1970())));
    }
    file->append(std::exchange(records, {}));
    file->flush();
    hparams.write(folder());
  }

  TensorBoardOptions options;
  FlushSchedule schedule;
  std::string claimed;
  std::string records;  // those that `file` has not been given yet
  std::optional<detail::AppendFile> file;
  std::set<std::string> described;  // names of metrics that the file has metadata of
  detail::HparamsFile hparams;
  bool in_session = false;  // the table of hyper-parameters has this run, not yet its end
};

TensorBoardLogger::TensorBoardLogger(TensorBoardOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
TensorBoardLogger::~TensorBoardLogger() = default;

void TensorBoardLogger::log_metrics(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step) {
  if (metrics.empty()) return;
  const auto row = detail::row_of(metrics, epoch, step);
  state_->add(detail::scalars_event({seconds_since_1970(), row.whole_step},
                                    row.prefixed(state_->options.prefix), state_->described));
  if (state_->schedule.add_row()) flush();
}

void TensorBoardLogger::log_hyperparams(const HyperParameters& params) {
  const Metric hp_metric("hp_metric", -1);
  log_hyperparams(params, state_->options.default_hp_metric ? std::span(&hp_metric, 1) : std::span<Metric>());
}

void TensorBoardLogger::log_hyperparams(const HyperParameters& params, std::span<const Metric> metrics) {
  state_->hparams.update(params);
  if (!metrics.empty()) {
    const detail::EventTime now{.wall_time = seconds_since_1970()};
    const auto row = detail::prefixed(state_->options.prefix, metrics);
    state_->add(detail::scalars_event(now, row, state_->described));
    for (const auto& event : detail::session_start_events(now, params, row)) state_->add(event);
    state_->in_session = true;
  }
  flush();
}

void TensorBoardLogger::flush() {
  state_->schedule.flushed();
  if (!state_->pending()) return;
  detail::write_or_warn(state_->place(), [&] { state_->write(); });
}

void TensorBoardLogger::finalize(const std::string& status) {
  if (std::exchange(state_->in_session, false)) {
    state_->add(detail::session_end_event({.wall_time = seconds_since_1970()}, status == "success"));
  }
  flush();
}

std::string TensorBoardLogger::name() const { return state_->options.name; }
std::string TensorBoardLogger::version() const { return state_->claim(); }
fs::path TensorBoardLogger::save_dir() const { return state_->options.save_dir; }
fs::path TensorBoardLogger::log_dir() const { return state_->folder(); }

}  // namespace lockstep
