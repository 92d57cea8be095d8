#include <lockstep/profilers/make_profiler.h>

#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/nearest.h>
#include <lockstep/profilers/advanced_profiler.h>
#include <lockstep/profilers/simple_profiler.h>
#include <lockstep/profilers/trace_profiler.h>

#include "base/format.h"

namespace lockstep {
namespace {

struct Maker {
  const char* name;
  std::unique_ptr<Profiler> (*make)(ProfilerFile file);
};

std::unique_ptr<Profiler> make_simple(ProfilerFile file) {
  return std::make_unique<SimpleProfiler>(
      SimpleProfilerOptions{.dirpath = std::move(file.dirpath), .filename = std::move(file.filename)});
}

std::unique_ptr<Profiler> make_advanced(ProfilerFile file) {
  return std::make_unique<AdvancedProfiler>(std::move(file));
}

std::unique_ptr<Profiler> make_trace(ProfilerFile file) {
  TraceProfilerOptions options{.dirpath = std::move(file.dirpath)};
  if (!file.filename.empty()) options.filename = std::move(file.filename);
  return std::make_unique<TraceProfiler>(std::move(options));
}

constexpr Maker kMakers[] = {{"simple", make_simple}, {"advanced", make_advanced}, {"trace", make_trace}};

std::string hint_for(std::string_view name) {
  if (name == "pytorch" || name == "xla") return "`trace` writes a time line";
  return did_you_mean(nearest_name(name, profiler_names()));
}

}  // namespace

std::span<const std::string> profiler_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (const auto& maker : kMakers) made.emplace_back(maker.name);
    return made;
  }();
  return names;
}

std::unique_ptr<Profiler> make_profiler(std::string_view name, ProfilerFile file) {
  for (const auto& maker : kMakers) {
    if (name == maker.name) return maker.make(std::move(file));
  }
  throw ConfigError("profilers", {.what = "When passing string value for the `profiler` parameter of "
                                          "`Trainer`, it can only be one of ['" +
                                          joined(profiler_names(), "', '") + "']",
                                  .got = '"' + std::string(name) + '"',
                                  .hint = hint_for(name)});
}

}  // namespace lockstep
