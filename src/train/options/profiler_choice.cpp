#include <lockstep/train/profiler_choice.h>

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/profilers/make_profiler.h>

namespace lockstep {
namespace {

constexpr std::string_view kOwnProfiler = "own";

bool is_profiler_name(std::string_view text) {
  const auto names = profiler_names();
  return std::ranges::find(names, text) != names.end();
}

}  // namespace

std::string OptionType<ProfilerChoice>::accepted() {
  std::string names;
  for (const auto& name : profiler_names()) names += name + ", ";
  return "one of " + names + "own (that of the program's code) or none";
}

ProfilerChoice::ProfilerChoice(std::string name) : name_(std::move(name)) {
  if (is_profiler_name(name_)) return;
  throw ConfigError(
      "train",
      {.what = "profiler", .expected = OptionType<ProfilerChoice>::accepted(), .got = "\"" + name_ + "\""});
}

std::shared_ptr<Profiler> ProfilerChoice::get() const {
  if (profiler_ || name_.empty()) return profiler_;
  return make_profiler(name_);
}

Expected<ProfilerChoice> ProfilerChoice::parse(std::string_view text) {
  if (detail::same_name(text, "none") || detail::same_name(text, "null") || text.empty())
    return ProfilerChoice();
  if (!is_profiler_name(text) && text != kOwnProfiler)
    return Unexpected{OptionType<ProfilerChoice>::accepted()};
  ProfilerChoice choice;
  choice.name_ = text;
  return choice;
}

std::string ProfilerChoice::print() const {
  if (profiler_) return std::string(kOwnProfiler);
  return name_.empty() ? "none" : name_;
}

}  // namespace lockstep
