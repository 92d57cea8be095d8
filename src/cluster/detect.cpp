#include <lockstep/cluster/detect.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>
#include <lockstep/cluster/env_environment.h>
#include <lockstep/cluster/kubeflow_environment.h>
#include <lockstep/cluster/lightning_environment.h>
#include <lockstep/cluster/lsf_environment.h>
#include <lockstep/cluster/mpi_environment.h>
#include <lockstep/cluster/slurm_environment.h>
#include <lockstep/cluster/torchelastic_environment.h>
#include <lockstep/cluster/xla_environment.h>

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

}  // namespace lockstep
