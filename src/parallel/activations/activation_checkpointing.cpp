#include <lockstep/parallel/activation_checkpointing.h>

#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "parallel/activations/block_segments.h"

namespace lockstep {
namespace {

struct CheckpointedModule {
  const torch::nn::Module* address;
  std::weak_ptr<const torch::nn::Module> module;
  std::unique_ptr<detail::BlockSegments> segments;
};

struct CheckpointedModules {
  std::mutex mutex;  // guards the rows
  std::vector<CheckpointedModule> rows;
};

// Never destroyed: models may be static, too.
CheckpointedModules& checkpointed_modules() {
  static auto* all = new CheckpointedModules;
  return *all;
}

void refuse_unowned(const torch::nn::Module& module) {
  if (!module.weak_from_this().expired()) return;
  throw ConfigError("parallel", {.what = "activation checkpointing of " + module.name(),
                                 .expected = "a module owned by a std::shared_ptr",
                                 .got = "one that is not"});
}

}  // namespace

ActivationCheckpointing::ActivationCheckpointing(std::string_view text) {
  auto parsed = OptionType<ActivationCheckpointing>::parse(text);
  if (!parsed) {
    throw ConfigError("parallel", {.what = "a choice of modules to checkpoint",
                                   .expected = parsed.error(),
                                   .got = '"' + std::string(text) + '"'});
  }
  *this = std::move(*parsed);
}

Expected<ActivationCheckpointing> OptionType<ActivationCheckpointing>::parse(std::string_view text) {
  if (const auto is_on = OptionType<bool>::parse(text)) return ActivationCheckpointing(*is_on);
  if (detail::same_name(text, "none")) return ActivationCheckpointing();
  auto policy = OptionType<WrapPolicy>::parse(text);
  if (!policy) return Unexpected{accepted()};
  return ActivationCheckpointing(std::move(*policy));
}

std::string OptionType<ActivationCheckpointing>::print(const ActivationCheckpointing& value) {
  if (value.policy()) return value.policy()->print();
  return value.is_on() ? "true" : "false";
}

std::string OptionType<ActivationCheckpointing>::accepted() {
  return "true (every unit), false, repeated_blocks, min_num_params=N, or names of module types with commas "
         "between";
}

void apply_activation_checkpointing(const torch::nn::Module& module, const WrapPolicy& policy) {
  refuse_unowned(module);
  auto& [mutex, rows] = checkpointed_modules();
  const std::lock_guard lock(mutex);
  std::erase_if(rows, [&](const auto& row) { return row.module.expired() || row.address == &module; });
  rows.push_back({.address = &module,
                  .module = module.weak_from_this(),
                  .segments = std::make_unique<detail::BlockSegments>(module, policy)});
}

void detail::mark_checkpointed_again(const torch::nn::Module& module) {
  std::unordered_set<const torch::nn::Module*> parts{&module};
  for (const auto& part : module.modules(/*include_self=*/false)) parts.insert(part.get());
  auto& [mutex, rows] = checkpointed_modules();
  const std::lock_guard lock(mutex);
  for (const auto& row : rows) {
    if (parts.contains(row.address) && !row.module.expired()) row.segments->mark_again();
  }
}

}  // namespace lockstep
