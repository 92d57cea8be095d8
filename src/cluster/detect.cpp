#include <lockstep/cluster/detect.h>

#include <algorithm>

#include <lockstep/cluster/lightning_environment.h>
#include <lockstep/cluster/torchelastic_environment.h>

namespace lockstep {
namespace {

template <class T>
std::shared_ptr<ClusterEnvironment> make() {
  return std::make_shared<T>();
}

constexpr EnvironmentKind kKinds[] = {
    {"torchelastic", &TorchElasticEnvironment::detect, &make<TorchElasticEnvironment>},
    {"lightning", [] { return true; }, &make<LightningEnvironment>},
};

}  // namespace

std::span<const EnvironmentKind> environment_kinds() { return kKinds; }

std::shared_ptr<ClusterEnvironment> detect_environment() {
  const auto kinds = environment_kinds();
  return std::ranges::find_if(kinds, [](const auto& kind) { return kind.detect(); })->make();
}

}  // namespace lockstep
