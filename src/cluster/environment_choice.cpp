#include <lockstep/cluster/environment_choice.h>

#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/cluster/detect.h>

namespace lockstep {
namespace {

constexpr std::string_view kDetected = "auto";
constexpr std::string_view kOwn = "own";  // stands, as text, for one of the program's own

// Empty: no environment has this name.
std::string spelling_of(std::string_view name) {
  if (name == kOwn) return std::string(name);
  for (const auto& kind : environment_kinds())
    if (detail::same_name(kind.name, name)) return std::string(kind.spelling);
  return {};
}

}  // namespace

EnvironmentChoice::EnvironmentChoice(std::string_view name) : name_(spelling_of(name)) {
  if (!name_.empty() || detail::same_name(name, kDetected)) return;
  throw ConfigError("cluster", {.what = "cluster_environment",
                                .expected = OptionType<EnvironmentChoice>::accepted(),
                                .got = "\"" + std::string(name) + "\""});
}

EnvironmentChoice::EnvironmentChoice(std::shared_ptr<ClusterEnvironment> environment)
    : own_(std::move(environment)) {
  if (!own_)
    throw ConfigError("cluster",
                      {.what = "cluster_environment", .expected = "an environment", .got = "null"});
  name_ = own_->name();
}

std::shared_ptr<ClusterEnvironment> EnvironmentChoice::environment() const {
  if (own_) return own_;
  return is_detected() ? detect_environment() : make_environment(name_);
}

Expected<EnvironmentChoice> OptionType<EnvironmentChoice>::parse(std::string_view text) {
  if (detail::same_name(text, kDetected)) return EnvironmentChoice();
  if (spelling_of(text).empty()) return Unexpected{accepted()};
  return EnvironmentChoice(text);
}

std::string OptionType<EnvironmentChoice>::print(const EnvironmentChoice& value) {
  if (value.is_detected()) return std::string(kDetected);
  return spelling_of(value.name()).empty() ? std::string(kOwn) : value.name();
}

std::string OptionType<EnvironmentChoice>::accepted() { return detail::one_of(names()); }

std::vector<std::string> OptionType<EnvironmentChoice>::names() {
  std::vector<std::string> found{std::string(kDetected)};
  for (const auto& kind : environment_kinds()) found.emplace_back(kind.spelling);
  return found;
}

}  // namespace lockstep
