// Reads the folder of a run for the report.
#include <algorithm>
#include <compare>
#include <iterator>
#include <set>

#include <lockstep/base/error.h>
#include <lockstep/base/options.h>
#include <lockstep/report/report.h>

#include "report/run_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::vector<std::pair<std::string, std::string>> read_config(const fs::path& file) {
  std::vector<std::pair<std::string, std::string>> config;
  for (const auto& assignment : read_yaml_file(file))
    std::ranges::move(single_values(assignment), std::back_inserter(config));
  return config;
}

// In the folder and in those below it; shorter names first: a merged trace, whose clocks agree, before what
// it was made of.
std::vector<fs::path> files_that_may_be_profiles(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  const auto add_all = [&](const fs::path& place) {
    for (const auto& entry : fs::directory_iterator(place)) {
      if (entry.is_regular_file() && entry.path().extension() == extension) files.push_back(entry.path());
    }
  };
  add_all(folder);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && entry.path().filename() != "checkpoints") add_all(entry.path());
  }
  std::ranges::sort(files, [](const fs::path& a, const fs::path& b) {
    const auto longer = a.string().size() <=> b.string().size();
    return longer != 0 ? longer < 0 : a < b;
  });
  return files;
}

void read_profiles(RunRecord& run) {
  std::vector<fs::path> traces = files_that_may_be_profiles(run.folder, ".json");
  std::erase_if(traces, [](const fs::path& file) { return !detail::is_trace(file); });
  run.times = detail::read_trace_times(traces);
  auto tables = files_that_may_be_profiles(run.folder, ".txt");
  std::ranges::sort(tables);  // rank 0 first
  for (const auto& file : tables) {
    run.actions = detail::read_profiler_table(file);
    if (!run.actions.empty()) return;
  }
}

[[noreturn]] void refuse(const fs::path& folder, const std::string& got) {
  throw IoError("report",
                {.what = folder.string() + " is no run's folder",
                 .expected = "one that holds config.yaml, metrics.csv, summary.json or failure.json",
                 .got = got});
}

// `path` with its last component's name at the end, also when it is written as "runs/a/" or ".".
fs::path whole(const fs::path& path) {
  auto absolute = fs::absolute(path).lexically_normal();
  return absolute.has_filename() ? absolute : absolute.parent_path();
}

/// The last `parts` components of `path`.
std::string tail(const fs::path& path, int parts) {
  fs::path shown = path.filename();
  auto rest = path.parent_path();
  for (int i = 1; i < parts && rest.has_filename(); ++i, rest = rest.parent_path())
    shown = rest.filename() / shown;
  return shown.string();
}

}  // namespace

RunRecord read_run(const fs::path& folder) {
  if (!fs::is_directory(folder)) refuse(folder, fs::exists(folder) ? "a file" : "nothing there");
  const auto there = [&](const char* name) { return fs::exists(folder / name); };
  if (!there("config.yaml") && !there("metrics.csv") && !there("summary.json") && !there("failure.json"))
    refuse(folder, "none of them");
  RunRecord run{.folder = folder, .curves = detail::read_metrics(folder)};
  if (there("summary.json")) run.summary = detail::read_summary(folder / "summary.json");
  if (there("failure.json")) run.failure = detail::read_failure(folder / "failure.json");
  if (there("config.yaml")) run.config = read_config(folder / "config.yaml");
  read_profiles(run);
  return run;
}

std::vector<std::string> run_names(const std::vector<RunRecord>& runs) {
  constexpr int kMostParts = 64;
  std::vector<std::string> names;
  for (int parts = 1; parts <= kMostParts; ++parts) {
    names.clear();
    for (const auto& run : runs) {
      const auto path = whole(run.folder);
      const bool is_version = path.filename().string().starts_with("version_");
      names.push_back(tail(path, parts + (is_version && parts == 1 ? 1 : 0)));
    }
    if (std::set(names.begin(), names.end()).size() == names.size()) break;
  }
  return names;
}

}  // namespace lockstep
