#include "train/logging/summary.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/process.h>
#include <lockstep/base/version.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

double ratio(double value, double by) { return by > 0 ? value / by : 0; }

}  // namespace

std::vector<std::int64_t> peak_rss_of_all(const RunState& state) {
  std::vector<std::int64_t> bytes;
  for (const auto& text : state.communicator().all_gather_bytes(std::to_string(peak_rss_bytes()))) {
    bytes.push_back(std::stoll(text));
  }
  return bytes;
}

void write_summary(const RunState& state, const std::string& status,
                   const std::vector<std::int64_t>& peak_rss) {
  if (state.run_dir.empty() || !state.is_global_zero()) return;
  const auto& progress = state.progress;
  const auto& figures = state.figures;
  nlohmann::ordered_json summary{
      {"status", status},
      {"strategy", state.strategy->name()},
      {"precision", state.precision->name()},
      {"world_size", state.environment->world_size()},
      {"epochs", progress.epoch},
      {"steps", progress.global_step},
      {"samples", progress.samples},
      {"seconds", figures.seconds},
      {"samples_per_second", ratio(static_cast<double>(figures.samples), figures.seconds)},
      {"start_to_first_collective_s", figures.start_to_first_collective_s},
      {"comm_backend", state.communicator().backend()},
      {"bytes_sent_per_step",
       ratio(static_cast<double>(figures.bytes_sent), static_cast<double>(figures.steps))},
      {"peak_rss_bytes_per_rank", peak_rss},
      {"metrics", state.all_metrics},
      {"versions", {{"lockstep", kVersion}, {"libtorch", TORCH_VERSION}}}};
  for (const auto& [name, found] : state.tuned)
    std::visit([&](const auto& value) { summary["tuned"][name] = value; }, found);
  write_file_atomically(state.run_dir / "summary.json",
                        summary.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace lockstep::detail
