// The parts of the page that are tables: overview, failures, memory, configuration and environment.
#include "report/page.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "report/curve.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kMostOptionRows = 600;
constexpr std::size_t kLongestValue = 200;

using Values = std::map<std::string, std::string>;

// In the order of the first run; keys that only others have come behind.
std::vector<std::string> keys_of(ComparedRuns runs) {
  std::vector<std::string> keys;
  std::set<std::string> seen;
  for (const auto& run : runs) {
    for (const auto& [key, value] : run->config) {
      if (seen.insert(key).second) keys.push_back(key);
    }
  }
  return keys;
}

std::string shortened(const std::string& value) {
  if (value.size() <= kLongestValue) return value;
  auto end = kLongestValue;
  while ((static_cast<unsigned char>(value[end]) & 0xC0) == 0x80) --end;  // not within a letter of UTF-8
  return value.substr(0, end) + "\u2026";
}

/// The options of several runs, by key.
class Options {
 public:
  explicit Options(ComparedRuns runs) : runs_(runs), keys_(keys_of(runs)) {
    for (const auto& run : runs) values_.emplace_back(run->config.begin(), run->config.end());
  }

  const std::vector<std::string>& keys() const { return keys_; }

  // Each run has a folder of its own: that says nothing. Runs without a file are none of the others.
  bool differs(const std::string& key) const {
    if (key == "run_dir") return false;
    std::set<std::string> found;
    for (const auto& values : values_) {
      if (!values.empty()) found.insert(text(values, key));
    }
    return found.size() > 1;
  }

  std::vector<Cell> header() const {
    std::vector<Cell> header{{"Option"}};
    for (std::size_t index = 0; index < runs_.size(); ++index)
      header.push_back({.text = runs_[index].name, .classes = "run " + run_classes(index), .run = index});
    return header;
  }

  Row row(const std::string& key, bool marked) const {
    Row row{.cells = {{.text = key, .classes = "key"}}, .classes = marked ? "differs" : ""};
    for (std::size_t index = 0; index < runs_.size(); ++index)
      row.cells.push_back(
          {.text = shortened(text(values_[index], key)), .classes = "run " + run_classes(index)});
    return row;
  }

 private:
  static std::string text(const Values& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? "\u2013" : found->second;
  }

  ComparedRuns runs_;
  std::vector<std::string> keys_;
  std::vector<Values> values_;
};

void write_rows(HtmlWriter& page, const Options& options, std::vector<Row> rows) {
  const auto left_out = rows.size() - std::min(rows.size(), kMostOptionRows);
  rows.resize(rows.size() - left_out);
  write_table(page, options.header(), rows, Columns::kText);
  if (left_out > 0) write_note(page, fmt::format("{} more are not shown.", left_out));
}

}  // namespace

void write_config(HtmlWriter& page, ComparedRuns runs) {
  const auto section = page.within("section", {{"id", "configuration"}});
  page.element("h2", {}, "Configuration");
  const Options options(runs);
  if (options.keys().empty()) return write_note(page, "No run has a config.yaml.");
  std::vector<Row> different, all;
  for (const auto& key : options.keys()) {
    const bool differs = options.differs(key);
    all.push_back(options.row(key, differs));
    if (differs) different.push_back(options.row(key, false));
  }
  const auto card = page.within("div", {{"class", "card"}});
  if (runs.size() > 1 && different.empty()) write_note(page, "All runs have the same options.");
  if (!different.empty()) page.element("h3", {}, "Differences");
  if (!different.empty()) write_rows(page, options, std::move(different));
  const auto details = page.within("details");
  page.element("summary", {}, fmt::format("All {} options", all.size()));
  write_rows(page, options, std::move(all));
}

namespace {

const std::string kNothing = "\u2013";

template <class T, class Text>
Cell cell(const std::optional<T>& value, Text text) {
  return {.text = value ? text(*value) : kNothing};
}

std::string whole_text(std::int64_t number) { return fmt::format("{}", number); }
std::string or_nothing(const std::string& text) { return text.empty() ? kNothing : text; }

const RunSummary& summary_of(const ComparedRun& run) {
  static const RunSummary kEmpty{};
  return run->summary ? *run->summary : kEmpty;
}

double largest_rate(ComparedRuns runs) {
  double largest = 0;
  for (const auto& run : runs) largest = std::max(largest, summary_of(run).samples_per_second.value_or(0));
  return largest;
}

std::optional<double> seconds_per_step(const RunSummary& summary) {
  if (!summary.seconds || summary.steps.value_or(0) <= 0) return std::nullopt;
  return *summary.seconds / static_cast<double>(*summary.steps);
}

std::optional<double> peak_bytes(const RunSummary& summary) {
  const auto& bytes = summary.peak_rss_bytes_per_rank;
  if (bytes.empty()) return std::nullopt;
  return static_cast<double>(std::ranges::max(bytes));
}

Row overview_row(ComparedRuns runs, std::size_t index, double largest) {
  const auto& run = runs[index];
  const auto& summary = summary_of(run);
  const auto status = status_of(*run.record);
  auto rate = cell(summary.samples_per_second, [](double value) { return short_number(value, 5); });
  if (summary.samples_per_second && largest > 0) rate.bar = *summary.samples_per_second / largest;
  const std::string shade = run->failure ? "bad" : status == "success" ? "good" : "open";
  return {.cells = {{.text = run.name, .run = index},
                    {.text = status, .classes = "word status " + shade},
                    {.text = or_nothing(summary.strategy), .classes = "word"},
                    cell(summary.world_size, whole_text),
                    {.text = or_nothing(summary.precision), .classes = "word"},
                    cell(summary.epochs, whole_text),
                    cell(summary.steps, whole_text),
                    cell(summary.seconds, seconds_text),
                    cell(seconds_per_step(summary), seconds_text),
                    rate,
                    cell(peak_bytes(summary), bytes_text)},
          .classes = "run " + run_classes(index)};
}

// Many ranks are shown by the least, the middle and the largest of them.
std::vector<std::pair<std::string, double>> memory_rows(std::vector<std::int64_t> bytes) {
  constexpr std::size_t kMostRanks = 32;
  std::vector<std::pair<std::string, double>> rows;
  if (bytes.size() <= kMostRanks) {
    for (std::size_t rank = 0; rank < bytes.size(); ++rank)
      rows.emplace_back("rank " + std::to_string(rank), static_cast<double>(bytes[rank]));
    return rows;
  }
  std::ranges::sort(bytes);
  return {{"least rank", static_cast<double>(bytes.front())},
          {"median rank", static_cast<double>(bytes[bytes.size() / 2])},
          {"largest rank", static_cast<double>(bytes.back())}};
}

using Fact = std::string (*)(const RunSummary&);

std::string backend(const RunSummary& summary) { return or_nothing(summary.comm_backend); }
std::string ranks(const RunSummary& summary) { return cell(summary.world_size, whole_text).text; }
std::string strategy(const RunSummary& summary) { return or_nothing(summary.strategy); }
std::string precision(const RunSummary& summary) { return or_nothing(summary.precision); }
std::string start(const RunSummary& summary) {
  return cell(summary.start_to_first_collective_s, seconds_text).text;
}
std::string sent(const RunSummary& summary) { return cell(summary.bytes_sent_per_step, bytes_text).text; }
std::string samples(const RunSummary& summary) { return cell(summary.samples, whole_text).text; }

constexpr std::pair<const char*, Fact> kFacts[] = {{"strategy", strategy},
                                                   {"ranks", ranks},
                                                   {"precision", precision},
                                                   {"communication", backend},
                                                   {"sent per step", sent},
                                                   {"samples", samples},
                                                   {"start to first collective", start}};

// "compile_seconds" as it is read.
std::string in_words(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

std::string xla_count(const RunSummary& summary, const std::string& name) {
  const auto found = summary.xla.find(name);
  if (found == summary.xla.end()) return kNothing;
  return name.ends_with("seconds") ? seconds_text(found->second) : short_number(found->second, 5);
}

void write_failure(HtmlWriter& page, ComparedRuns runs, std::size_t index) {
  const auto& failure = *runs[index]->failure;
  const auto card = page.within("div", {{"class", "card failure run " + run_classes(index)}});
  {
    const auto title = page.within("h3");
    page.element("span", {{"class", "swatch"}});
    page.text(runs[index].name);
  }
  page.element("p", {{"class", "message"}}, failure.message);
  std::vector<Row> rows;
  for (const auto& rank : failure.ranks) {
    rows.push_back({.cells = {{.text = "rank " + std::to_string(rank.rank)},
                              {.text = rank.end},
                              {.text = or_nothing(rank.collective)},
                              {.text = std::to_string(rank.step)},
                              {.text = or_nothing(rank.error)}}});
  }
  write_table(page, {{"Rank"}, {"End"}, {"Collective"}, {"Step"}, {"Error"}}, rows, Columns::kText);
}

}  // namespace

std::string status_of(const RunRecord& run) {
  if (run.failure) return "failed";
  if (run.summary && !run.summary->status.empty()) return run.summary->status;
  return "no end yet";
}

void write_overview(HtmlWriter& page, ComparedRuns runs, bool has_notes) {
  const auto section = page.within("section", {{"id", "runs"}});
  page.element("h2", {}, "Runs");
  const double largest = largest_rate(runs);
  std::vector<Row> rows;
  for (std::size_t index = 0; index < runs.size(); ++index)
    rows.push_back(overview_row(runs, index, largest));
  const auto card = page.within("div", {{"class", "card"}});
  write_table(page,
              {{"Run"},
               {.text = "Status", .classes = "word"},
               {.text = "Strategy", .classes = "word"},
               {"Ranks"},
               {.text = "Precision", .classes = "word"},
               {"Epochs"},
               {"Steps"},
               {"Time"},
               {"Time per step"},
               {"Samples per second"},
               {"Peak memory of a rank"}},
              rows);
  for (const auto& run : runs) {
    if (!run->summary && !run->failure)
      write_note(page,
                 run.name + " has no summary.json: it is still running, or was stopped before its end.");
  }
  if (const auto note = note_on_seeds(runs); has_notes && !note.empty()) write_note(page, note);
}

void write_failures(HtmlWriter& page, ComparedRuns runs) {
  if (std::ranges::none_of(runs, [](const ComparedRun& run) { return run->failure.has_value(); })) return;
  const auto section = page.within("section", {{"id", "failures"}});
  page.element("h2", {}, "Failures");
  for (std::size_t index = 0; index < runs.size(); ++index) {
    if (runs[index]->failure) write_failure(page, runs, index);
  }
}

void write_memory(HtmlWriter& page, ComparedRuns runs) {
  const auto section = page.within("section", {{"id", "memory"}});
  page.element("h2", {}, "Memory");
  double largest = 0;
  for (const auto& run : runs) largest = std::max(largest, peak_bytes(summary_of(run)).value_or(0));
  std::vector<Row> rows;
  for (std::size_t index = 0; index < runs.size(); ++index) {
    for (const auto& [rank, bytes] : memory_rows(summary_of(runs[index]).peak_rss_bytes_per_rank)) {
      rows.push_back({.cells = {{.text = runs[index].name, .run = index},
                                {.text = rank, .classes = "word"},
                                {.text = bytes_text(bytes), .bar = largest > 0 ? bytes / largest : 0}},
                      .classes = "run " + run_classes(index)});
    }
  }
  if (rows.empty())
    return write_note(page, "No run has a summary.json that says how much memory its ranks took.");
  const auto card = page.within("div", {{"class", "card"}});
  write_table(page, {{"Run"}, {.text = "Rank", .classes = "word"}, {"Largest resident set"}}, rows);
}

void write_environment(HtmlWriter& page, ComparedRuns runs) {
  const auto section = page.within("section", {{"id", "environment"}});
  page.element("h2", {}, "Environment");
  std::vector<Cell> header{{""}};
  for (std::size_t index = 0; index < runs.size(); ++index)
    header.push_back({.text = runs[index].name, .classes = "run " + run_classes(index), .run = index});
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, auto fact) {
    Row row{.cells = {{.text = name}}};
    for (std::size_t index = 0; index < runs.size(); ++index)
      row.cells.push_back({.text = fact(summary_of(runs[index])), .classes = "run " + run_classes(index)});
    rows.push_back(std::move(row));
  };
  std::set<std::string> packages;
  for (const auto& run : runs) {
    for (const auto& [package, version] : summary_of(run).versions) packages.insert(package);
  }
  for (const auto& package : packages) {
    add(package, [&](const RunSummary& summary) {
      const auto found = summary.versions.find(package);
      return found == summary.versions.end() ? kNothing : found->second;
    });
  }
  for (const auto& [name, fact] : kFacts) add(name, fact);
  std::set<std::string> counts;
  for (const auto& run : runs)
    for (const auto& [name, number] : summary_of(run).xla) counts.insert(name);
  for (const auto& name : counts)
    add("XLA: " + in_words(name), [&](const RunSummary& summary) { return xla_count(summary, name); });
  const auto card = page.within("div", {{"class", "card"}});
  write_table(page, header, rows, Columns::kText);
}

}  // namespace lockstep::detail
