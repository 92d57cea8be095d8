// Options of the runs, side by side.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "report/sections.h"
#include "report/widgets.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kMostRows = 600;
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
  const auto left_out = rows.size() - std::min(rows.size(), kMostRows);
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

}  // namespace lockstep::detail
