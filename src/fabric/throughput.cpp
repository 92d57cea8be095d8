#include <lockstep/fabric/throughput.h>

#include <numeric>
#include <utility>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse(std::string what, std::string expected, std::string got) {
  throw ConfigError(
      "fabric",
      {.what = "Throughput: " + std::move(what), .expected = std::move(expected), .got = std::move(got)});
}

template <class Number>
void require_growth(const char* name, Number before, Number now) {
  if (now > before) return;
  refuse(std::string(name) + " has not increased", "more than " + std::to_string(before),
         std::to_string(now));
}

void require_as_many(const char* name, std::int64_t count, const char* of, std::int64_t least) {
  if (count >= least) return;
  refuse(name, "at least as many as " + std::string(of) + ": " + std::to_string(least),
         std::to_string(count));
}

}  // namespace

Throughput::Throughput(ThroughputOptions options) : options_(std::move(options)) {
  if (options_.world_size < 1) refuse("world_size", ">= 1", std::to_string(options_.world_size));
  if (options_.window_size < 2) refuse("window_size", ">= 2", std::to_string(options_.window_size));
}

void Throughput::check(const ThroughputUpdate& totals) const {
  require_as_many("samples", totals.samples, "batches", totals.batches);
  if (totals.lengths) require_as_many("lengths", *totals.lengths, "samples", totals.samples);
  if (window_.empty()) return;
  const auto& before = window_.back();
  require_growth("time", before.time.count(), totals.time.count());
  require_growth("batches", before.batches, totals.batches);
  require_growth("samples", before.samples, totals.samples);
  if (before.lengths.has_value() != totals.lengths.has_value())
    refuse("lengths", "the same number of them as of samples: in all updates, or in none",
           totals.lengths ? "some from now on" : "none any more");
  if (totals.lengths) require_growth("lengths", *before.lengths, *totals.lengths);
}

void Throughput::update(const ThroughputUpdate& totals) {
  check(totals);
  window_.push_back(totals);
  if (window_.size() > options_.window_size) window_.pop_front();
  if (!totals.flops) return;
  flops_.push_back(*totals.flops * options_.world_size);
  if (flops_.size() > options_.window_size) flops_.pop_front();
}

Throughput::Metrics Throughput::compute() const {
  if (window_.empty()) refuse("compute()", "an update() before", "none");
  const auto& last = window_.back();
  Metrics metrics{{"time", last.time.count()},
                  {"batches", static_cast<double>(last.batches)},
                  {"samples", static_cast<double>(last.samples)}};
  if (last.lengths) metrics["lengths"] = static_cast<double>(*last.lengths);
  if (window_.size() == options_.window_size) add_rates(metrics);
  if (flops_.size() == options_.window_size) add_flops(metrics);
  return metrics;
}

void Throughput::add_rate(Metrics& metrics, const std::string& name, double per_second) const {
  metrics["device" + options_.separator + name] = per_second;
  if (options_.world_size > 1) metrics[name] = per_second * options_.world_size;
}

void Throughput::add_rates(Metrics& metrics) const {
  const auto& first = window_.front();
  const auto& last = window_.back();
  const double seconds = (last.time - first.time).count();
  add_rate(metrics, "batches_per_sec", static_cast<double>(last.batches - first.batches) / seconds);
  add_rate(metrics, "samples_per_sec", static_cast<double>(last.samples - first.samples) / seconds);
  if (last.lengths)
    add_rate(metrics, "items_per_sec", static_cast<double>(*last.lengths - *first.lengths) / seconds);
}

// What the first update tells was done before the window began.
void Throughput::add_flops(Metrics& metrics) const {
  const double seconds = (window_.back().time - window_.front().time).count();
  const double of_device =
      std::accumulate(flops_.begin() + 1, flops_.end(), 0.0) / seconds / options_.world_size;
  add_rate(metrics, "flops_per_sec", of_device);
  if (options_.available_flops)
    metrics["device" + options_.separator + "mfu"] = of_device / *options_.available_flops;
}

void Throughput::reset() {
  window_.clear();
  flops_.clear();
}

std::chrono::duration<double> Throughput::time() const {
  return window_.empty() ? std::chrono::duration<double>(0) : window_.back().time;
}

}  // namespace lockstep
