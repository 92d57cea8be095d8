// Where the time went: per rank from traces, per action from tables.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "report/page.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kMostTimedRanks = 64;
constexpr std::size_t kMostActions = 15;

struct Part {
  const char* name;
  const char* css_class;
  double seconds;
};

// What no action covers is other.
std::array<Part, 5> parts_of(const RankTimes& times) {
  const double named = times.compute_s + times.communication_s + times.data_s + times.checkpoint_s;
  return {{{"compute", "compute", times.compute_s},
           {"communication", "communication", times.communication_s},
           {"data", "data", times.data_s},
           {"checkpoint", "checkpoint", times.checkpoint_s},
           {"other", "other", std::max(0.0, times.span_s - named)}}};
}

void write_legend(HtmlWriter& page) {
  const auto legend = page.within("p", {{"class", "legend"}});
  for (const auto& part : parts_of({})) {
    const auto entry = page.within("span");
    page.element("i", {{"class", part.css_class}});
    page.text(part.name);
  }
}

void write_bar(HtmlWriter& page, const RankTimes& times) {
  const auto row = page.within("div", {{"class", "times"}});
  page.element("span", {{"class", "rank"}}, "rank " + std::to_string(times.rank));
  const auto bar = page.within("div", {{"class", "stack"}});
  for (const auto& part : parts_of(times)) {
    const double share = times.span_s > 0 ? part.seconds / times.span_s : 0;
    if (share <= 0) continue;
    const auto text = fmt::format("{} {}, {}", part.name, seconds_text(part.seconds), percent_text(share));
    page.element(
        "div",
        {{"class", part.css_class}, {"style", fmt::format("width:{:.2f}%", 100 * share)}, {"title", text}},
        share >= 0.06 ? percent_text(share) : "");
  }
}

void write_numbers(HtmlWriter& page, const StageTimes& stage) {
  const auto details = page.within("details");
  page.element("summary", {}, "Numbers");
  std::vector<Row> rows;
  for (const auto& times : stage.ranks) {
    if (rows.size() == kMostTimedRanks) break;
    Row row{.cells = {{.text = "rank " + std::to_string(times.rank)}, {.text = seconds_text(times.span_s)}}};
    for (const auto& part : parts_of(times)) row.cells.push_back({.text = seconds_text(part.seconds)});
    row.cells.push_back({.text = seconds_text(times.background_communication_s)});
    rows.push_back(std::move(row));
  }
  write_table(page,
              {{"Rank"},
               {"Time"},
               {"Compute"},
               {"Communication"},
               {"Data"},
               {"Checkpoint"},
               {"Other"},
               {"Communication beside it"}},
              rows);
}

void write_skew(HtmlWriter& page, const StageTimes& stage) {
  const auto [least, most] =
      std::ranges::minmax(stage.ranks, {}, [](const RankTimes& times) { return times.compute_s; });
  if (stage.ranks.size() > 1 && least.compute_s > 0) {
    write_note(page, fmt::format("Rank {} computes longest, {} more than rank {}.", most.rank,
                                 percent_text(most.compute_s / least.compute_s - 1), least.rank));
  }
  if (!stage.skew) return;
  write_note(
      page, fmt::format("Ranks came to {} collectives within {} of each other (median; in nine of ten within "
                        "{}). Rank {} came last in {} of them.",
                        stage.skew->collectives, seconds_text(stage.skew->median_s),
                        seconds_text(stage.skew->p90_s), stage.skew->last_rank,
                        percent_text(stage.skew->last_rank_share)));
}

// Streams work beside each other, so that parts can be more than all.
void write_device(HtmlWriter& page, const RankTimes& times) {
  if (times.device_span_s <= 0) return;
  const auto share = [&](double seconds) { return percent_text(seconds / times.device_span_s); };
  write_note(
      page,
      fmt::format("The device of rank {}, in {} that LibTorch's profiler measured: kernels {}, copies {}, "
                  "collectives {}.",
                  times.rank, seconds_text(times.device_span_s), share(times.device_kernels_s),
                  share(times.device_copies_s), share(times.device_collectives_s)));
}

void write_stage(HtmlWriter& page, const StageTimes& stage) {
  page.element("h4", {}, stage.stage);
  for (const auto& times : stage.ranks) {
    if (&times == &stage.ranks.front() + kMostTimedRanks) break;
    write_bar(page, times);
  }
  if (stage.ranks.size() > kMostTimedRanks)
    write_note(page, fmt::format("The first {} of {} ranks.", kMostTimedRanks, stage.ranks.size()));
  for (const auto& times : stage.ranks) write_device(page, times);
  write_skew(page, stage);
  std::uint64_t dropped = 0;
  for (const auto& times : stage.ranks) dropped += times.dropped_events;
  if (dropped > 0)
    write_note(page, fmt::format("The trace has the last part: {} older events were dropped.", dropped));
  write_numbers(page, stage);
}

void write_actions(HtmlWriter& page, const std::vector<ProfiledAction>& actions) {
  std::vector<Row> rows;
  const double largest = actions.front().total_s;
  for (const auto& action : actions) {
    if (rows.size() == kMostActions) break;
    rows.push_back({.cells = {{.text = action.name},
                              {.text = action.calls ? std::to_string(*action.calls) : "\u2013"},
                              {.text = seconds_text(action.total_s),
                               .bar = largest > 0 ? action.total_s / largest : 0}}});
  }
  write_table(page, {{"Action"}, {"Calls"}, {"Total time of rank 0"}}, rows);
  write_note(page,
             "From the profiler's table; actions contain each other. A trace shows each rank's share of "
             "compute, communication and data: train with --trainer.profiler trace");
}

void write_run(HtmlWriter& page, ComparedRuns runs, std::size_t index) {
  const auto& run = *runs[index].record;
  const auto card = page.within("div", {{"class", "card run " + run_classes(index)}});
  {
    const auto title = page.within("h3");
    page.element("span", {{"class", "swatch"}});
    page.text(runs[index].name);
  }
  if (!run.times.empty()) write_legend(page);
  for (const auto& stage : run.times) write_stage(page, stage);
  if (run.times.empty() && !run.actions.empty()) write_actions(page, run.actions);
  if (run.times.empty() && run.actions.empty())
    write_note(page, "No trace in this run: train with --trainer.profiler trace");
}

}  // namespace

void write_times(HtmlWriter& page, ComparedRuns runs) {
  const auto section = page.within("section", {{"id", "times"}});
  page.element("h2", {}, "Where the time went");
  for (std::size_t index = 0; index < runs.size(); ++index) write_run(page, runs, index);
}

}  // namespace lockstep::detail
