// Policies that users have set for modules, stored as long as the modules live, in place of wrappers.
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
  /// Marks the parameters again, after they have got other memory.
  virtual void mark_again() = 0;
};

/// Replaces the policy of this type that `module` has, if any, by the result of `make`, and stores it as long
/// as the module lives. Thread-safe. @throws ConfigError that names `what`, if no std::shared_ptr owns
/// `module`; as `make`
void set_policy(const torch::nn::Module& module, const char* what, std::type_index type,
                const std::function<std::unique_ptr<ModulePolicy>()>& make);

template <class Policy, class... Arguments>
void set_policy(const torch::nn::Module& module, const char* what, const Arguments&... arguments) {
  set_policy(module, what, typeid(Policy), [&] { return std::make_unique<Policy>(module, arguments...); });
}

/// Marks the parameters of `module` again, after they have got other memory, element types or another device.
LOCKSTEP_API void mark_policies_again(const torch::nn::Module& module);

}  // namespace lockstep::detail
