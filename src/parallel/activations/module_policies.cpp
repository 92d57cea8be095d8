#include "parallel/activations/module_policies.h"

#include <mutex>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "parallel/module_states.h"

namespace lockstep::detail {
namespace {

struct PolicyOfModule {
  std::type_index type;
  const torch::nn::Module* address;
  std::weak_ptr<const torch::nn::Module> module;
  std::unique_ptr<ModulePolicy> policy;
};

struct ModulePolicies {
  std::mutex mutex;  // guards the rows
  std::vector<PolicyOfModule> rows;
};

// Never destroyed: models may be static, too.
ModulePolicies& module_policies() {
  static auto* all = new ModulePolicies;
  return *all;
}

void refuse_unowned(const torch::nn::Module& module, const char* what) {
  if (!module.weak_from_this().expired()) return;
  throw ConfigError("parallel", {.what = std::string(what) + " of " + module.name(),
                                 .expected = "a module owned by a std::shared_ptr",
                                 .got = "one that is not"});
}

}  // namespace

void set_policy(const torch::nn::Module& module, const char* what, std::type_index type,
                const std::function<std::unique_ptr<ModulePolicy>()>& make) {
  refuse_unowned(module, what);
  auto& [mutex, rows] = module_policies();
  const std::lock_guard lock(mutex);
  std::erase_if(rows, [&](const auto& row) {
    return row.module.expired() || (row.address == &module && row.type == type);
  });
  rows.push_back({.type = type, .address = &module, .module = module.weak_from_this(), .policy = make()});
}

void mark_policies_again(const torch::nn::Module& module) {
  const auto parts = parts_of(module);
  auto& [mutex, rows] = module_policies();
  const std::lock_guard lock(mutex);
  for (const auto& row : rows) {
    if (parts.contains(row.address) && !row.module.expired()) row.policy->mark_again();
  }
}

}  // namespace lockstep::detail
