// The table of cluster environments, and how one of them is chosen: detected, or by name.
#include <lockstep/cluster/detect.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>
#include <lockstep/cluster/launcher_environments.h>
#include <lockstep/cluster/torch_environments.h>

namespace lockstep {
namespace {

template <class T>
std::shared_ptr<ClusterEnvironment> make() {
  return std::make_shared<T>();
}

bool never() { return false; }
bool always() { return true; }

constexpr EnvironmentKind kKinds[] = {
    {"torchelastic", "TorchElastic", &TorchElasticEnvironment::detect, &make<TorchElasticEnvironment>},
    {"slurm", "SLURM", &SlurmEnvironment::detect, &make<SlurmEnvironment>},
    {"lsf", "LSF", &LsfEnvironment::detect, &make<LsfEnvironment>},
    {"mpi", "MPI", &MpiEnvironment::detect, &make<MpiEnvironment>},
    {"kubeflow", "Kubeflow", &never, &make<KubeflowEnvironment>},
    {"xla", "XLA", &never, &make<XlaEnvironment>},
    {"env", "Env", &EnvEnvironment::detect, &make<EnvEnvironment>},
    {"lightning", "Lightning", &always, &make<LightningEnvironment>},
};

}  // namespace

std::span<const EnvironmentKind> environment_kinds() { return kKinds; }

std::shared_ptr<ClusterEnvironment> detect_environment() {
  return std::ranges::find_if(kKinds, [](const auto& kind) { return kind.detect(); })->make();
}

std::shared_ptr<ClusterEnvironment> make_environment(std::string_view name) {
  const auto* kind =
      std::ranges::find_if(kKinds, [&](const auto& one) { return detail::same_name(one.name, name); });
  if (kind != std::end(kKinds)) return kind->make();
  std::vector<std::string> names;
  for (const auto& one : kKinds) names.emplace_back(one.spelling);
  throw ConfigError("cluster", {.what = "no cluster environment has this name",
                                .expected = detail::one_of(names),
                                .got = "\"" + std::string(name) + "\""});
}

namespace {

constexpr std::string_view kDetected = "auto";
constexpr std::string_view kOwn = "own";  // the name that stands for an environment of the program's own

// The spelling of `name` in the table; empty where no environment has this name.
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
