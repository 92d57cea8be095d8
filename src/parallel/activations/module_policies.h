// What users asked of modules, for as long as these live: wrappers that are not there.
#pragma once

#include <functional>
#include <memory>
#include <typeindex>

#include <lockstep/base/export.h>

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// Follows the uses of a module's parameters.
class ModulePolicy {
 public:
  virtual ~ModulePolicy() = default;
  /// After parameters have got other memory: uses of it are noticed again.
  virtual void mark_again() = 0;
};

/// Lets go of the policy of this type that `module` has, if any, and keeps what `make` gives for as long as
/// it lives. Thread-safe. @throws ConfigError that names `what`, if no std::shared_ptr owns `module`; as
/// `make`
void set_policy(const torch::nn::Module& module, const char* what, std::type_index type,
                const std::function<std::unique_ptr<ModulePolicy>()>& make);

template <class Policy, class... Arguments>
void set_policy(const torch::nn::Module& module, const char* what, const Arguments&... arguments) {
  set_policy(module, what, typeid(Policy), [&] { return std::make_unique<Policy>(module, arguments...); });
}

/// After parameters of `module` have got other memory, other element types or another device.
LOCKSTEP_API void mark_policies_again(const torch::nn::Module& module);

}  // namespace lockstep::detail
