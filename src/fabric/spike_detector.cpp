#include <lockstep/fabric/spike_detector.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/torch.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

fs::path file_of(const fs::path& wanted) {
  if (wanted.extension() == ".json") return wanted;
  return wanted / "skip_batches.json";
}

// Whether one rank has met a spike, and whether one has met what is no number. Collective.
std::pair<bool, bool> on_any_rank(bool spike, bool not_finite, const Communicator& communicator) {
  if (communicator.size() == 1) return {spike, not_finite};
  const auto flags = torch::tensor({int{spike}, int{not_finite}}, torch::kInt);
  communicator.all_reduce(flags, ReduceOp::kMax);
  return {flags[0].item<int>() != 0, flags[1].item<int>() != 0};
}

}  // namespace

TrainingSpike::TrainingSpike(std::int64_t batch_idx, const ErrorParts& parts)
    : Error("fabric", parts), batch_idx_(batch_idx) {}
TrainingSpike::~TrainingSpike() = default;

SpikeDetector::SpikeDetector(SpikeDetectionOptions options)
    : options_(std::move(options)), path_(file_of(options_.exclude_batches_path)) {
  if (options_.window >= 1 && options_.warmup >= 0) return;
  const bool is_window = options_.window < 1;
  throw ConfigError("fabric", {.what = std::string("SpikeDetection: ") + (is_window ? "window" : "warmup"),
                               .expected = is_window ? ">= 1" : ">= 0",
                               .got = is_window ? "0" : std::to_string(options_.warmup)});
}

void SpikeDetector::observe(double loss, std::int64_t batch_idx, const Communicator& communicator) {
  const bool own_spike = batch_idx >= options_.warmup && is_spike(loss);
  const auto [spike, not_finite] = on_any_rank(own_spike, !std::isfinite(loss), communicator);
  if (spike) report(loss, batch_idx, communicator);
  if (not_finite) return;
  last_loss_ = loss;
  window_.push_back(loss);
  if (window_.size() > options_.window) window_.pop_front();
}

bool SpikeDetector::is_better(double loss) const {
  return options_.mode == MonitorMode::kMin ? loss - last_loss_ <= 0 : loss - last_loss_ >= 0;
}

double SpikeDetector::running_mean() const {
  if (window_.empty()) return std::numeric_limits<double>::quiet_NaN();  // away from nothing
  return std::accumulate(window_.begin(), window_.end(), 0.0) / static_cast<double>(window_.size());
}

bool SpikeDetector::is_spike(double loss) const {
  if (options_.finite_only && !std::isfinite(loss)) return true;
  if (is_better(loss)) return false;
  const double mean = running_mean();
  const double distance = std::abs(loss - mean);
  const bool beyond_atol = !options_.atol || distance >= std::abs(*options_.atol);
  const bool beyond_rtol = !options_.rtol || distance >= std::abs(*options_.rtol * mean);
  return beyond_atol && beyond_rtol;
}

void SpikeDetector::report(double loss, std::int64_t batch_idx, const Communicator& communicator) {
  bad_batches_.insert(bad_batches_.end(), {batch_idx - 1, batch_idx});
  if (communicator.rank() == 0) {
    create_folders(fs::absolute(path_).parent_path());
    write_file_atomically(path_, nlohmann::json(bad_batches_).dump(4) + "\n");
  }
  throw TrainingSpike(batch_idx, {.what = "training spike detected in batch " + std::to_string(batch_idx),
                                  .expected = "a loss near the running mean " +
                                              std::to_string(running_mean()) + " on every rank",
                                  .got = std::isnan(loss) ? "nan" : std::to_string(loss),
                                  .where = "rank " + std::to_string(communicator.rank()),
                                  .hint = "leave out the batches that " + path_.string() + " names"});
}

StateTree SpikeDetector::state() const {
  StateTree state;
  state.set("last_loss", last_loss_);
  state.set("window", torch::tensor(std::vector<double>(window_.begin(), window_.end()), torch::kDouble));
  state.set("bad_batches", torch::tensor(bad_batches_, torch::kLong));
  return state;
}

void SpikeDetector::load_state(const StateTree& state) {
  last_loss_ = state.get<double>("last_loss");
  const auto window = state.get<at::Tensor>("window").to(torch::kDouble).contiguous();
  window_.assign(window.const_data_ptr<double>(), window.const_data_ptr<double>() + window.numel());
  const auto batches = state.get<at::Tensor>("bad_batches").to(torch::kLong).contiguous();
  bad_batches_.assign(batches.const_data_ptr<std::int64_t>(),
                      batches.const_data_ptr<std::int64_t>() + batches.numel());
}

void describe(OptionVisitor& v, SpikeDetectionOptions& o) {
  v.field("mode", o.mode, "Whether a jump up (min) or down (max) is bad");
  v.field("window", o.window, "Losses in the running mean", at_least(1));
  v.field("warmup", o.warmup, "Batches of an epoch that are not judged", at_least(0));
  v.field("atol", o.atol, "Distance from the running mean that is a spike");
  v.field("rtol", o.rtol, "The same, as a multiple of the mean");
  v.field("exclude_batches_path", o.exclude_batches_path,
          "File (.json) that names the batches to leave out, or its folder; empty: in the run's folder");
  v.field("finite_only", o.finite_only, "NaN and infinity are spikes, too");
}

}  // namespace lockstep
