#include "parallel/sharded/unit_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

#include "parallel/sharded/shardable.h"

namespace lockstep::detail {
namespace {

using torch::nn::Module;

// Fewer elements than this are not worth a collective of their own.
constexpr std::int64_t kSmallestBlock = 4096;

using Chosen = std::unordered_set<const Module*>;

std::int64_t elements_of(const Module& module) {
  std::int64_t elements = 0;
  for (const auto& parameter : module.parameters()) elements += parameter.numel();
  return elements;
}

std::string type_of(const Module& module) { return type_name(typeid(module)); }

// Inside of a chosen block there is no other.
void choose_repeated(const Module& module, Chosen& chosen) {
  std::map<std::string, std::vector<const Module*>> kinds;
  for (const auto& child : module.children()) kinds[child->name()].push_back(child.get());
  for (const auto& [kind, blocks] : kinds) {
    std::int64_t largest = 0;
    for (const auto* block : blocks) largest = std::max(largest, elements_of(*block));
    const bool is_repeated = blocks.size() > 1 && largest >= kSmallestBlock;
    for (const auto* block : blocks) {
      if (is_repeated && elements_of(*block) > 0) {
        chosen.insert(block);
      } else {
        choose_repeated(*block, chosen);
      }
    }
  }
}

// Returns the elements that belong to no module chosen so far.
std::int64_t choose_large(const Module& module, std::int64_t minimum, bool is_root, Chosen& chosen) {
  const auto type = type_of(module);
  if (type == "MultiheadAttention" && !is_root) {
    const auto all = elements_of(module);
    if (all < minimum) return all;
    chosen.insert(&module);
    return 0;
  }
  std::int64_t left = 0;
  for (const auto& parameter : module.parameters(/*recurse=*/false)) left += parameter.numel();
  for (const auto& child : module.children()) left += choose_large(*child, minimum, false, chosen);
  const bool is_container = type == "ModuleList" || type == "ModuleDict";
  if (is_root || is_container || left < minimum) return left;
  chosen.insert(&module);
  return 0;
}

// Also of a module that no shared_ptr owns.
template <class Use>
void for_each_part(const Module& module, Use&& use) {
  use(module);
  for (const auto& part : module.modules(/*include_self=*/false)) use(*part);
}

template <class Test>
void choose_where(const Module& module, const Test& test, Chosen& chosen) {
  for_each_part(module, [&](const Module& part) {
    if (test(part)) chosen.insert(&part);
  });
}

struct Chooser {
  const Module& module;
  Chosen& chosen;

  void operator()(const WrapPolicy::RepeatedBlocks&) const { choose_repeated(module, chosen); }
  void operator()(const WrapPolicy::None&) const {}
  void operator()(const WrapPolicy::MinNumParams& rule) const {
    choose_large(module, rule.elements, /*is_root=*/true, chosen);
  }
  void operator()(const WrapPolicy::TypeNames& rule) const {
    choose_where(
        module, [&](const Module& part) { return std::ranges::count(rule.names, type_of(part)) > 0; },
        chosen);
  }
  void operator()(const WrapPolicy::Modules& rule) const {
    for (const auto& part : module.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
      const auto ends = [&](const auto& suffix) { return part.key().ends_with(suffix); };
      if (std::ranges::count(rule.types, type_of(*part.value())) > 0 ||
          std::ranges::count(rule.names, part.key()) > 0 || std::ranges::any_of(rule.name_suffixes, ends))
        chosen.insert(part.value().get());
    }
  }
  void operator()(const WrapPolicy::Predicate& predicate) const { choose_where(module, predicate, chosen); }
};

constexpr const char* kIgnored = "ignored_modules";

// A word of a policy that chooses nothing by itself: a typo, most likely.
struct IdleWord {
  const Module& module;

  std::optional<std::string> operator()(const WrapPolicy::TypeNames& rule) const {
    return first_idle(rule.names, [](const auto& word) { return WrapPolicy::TypeNames{{word}}; });
  }
  std::optional<std::string> operator()(const WrapPolicy::Modules& rule) const {
    using Modules = WrapPolicy::Modules;
    auto idle = first_idle(rule.types, [](const auto& word) { return Modules{{word}, {}, {}}; });
    if (!idle) idle = first_idle(rule.names, [](const auto& word) { return Modules{{}, {word}, {}}; });
    if (!idle)
      idle = first_idle(rule.name_suffixes, [](const auto& word) { return Modules{{}, {}, {word}}; });
    return idle;
  }
  template <class OtherRule>
  std::optional<std::string> operator()(const OtherRule&) const {
    return std::nullopt;
  }

 private:
  template <class MakeRule>
  std::optional<std::string> first_idle(const std::vector<std::string>& words,
                                        const MakeRule& rule_of) const {
    for (const auto& word : words) {
      Chosen chosen;
      Chooser{module, chosen}(rule_of(word));
      if (chosen.empty()) return word;
    }
    return std::nullopt;
  }
};

// DeepSpeed has no word for it.
const char* hint_for(std::string_view option) {
  return option.find("leaf_module") == std::string_view::npos
             ? "repeated_blocks finds the repeated blocks by itself"
             : "without this key the repeated blocks are found";
}

// The first ones, for an error.
std::string names_in(const Module& module) {
  constexpr std::size_t kMost = 12;
  std::string list;
  std::size_t count = 0;
  for (const auto& part : module.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    if (elements_of(*part.value()) == 0 || ++count > kMost) continue;
    list += (list.empty() ? "" : ", ") + part.key();
  }
  return count > kMost ? list + ", ..." : list;
}

// The types of what has parameters, the module itself included.
std::string types_in(const Module& module) {
  std::set<std::string> types;
  for_each_part(module, [&](const Module& part) {
    if (elements_of(part) > 0) types.insert(type_of(part));
  });
  std::string list;
  for (const auto& type : types) list += (list.empty() ? "" : ", ") + type;
  return list;
}

std::string asked_for(const WrapPolicy& policy) {
  if (std::holds_alternative<WrapPolicy::Predicate>(policy.rule()))
    return "a function that chooses none of them";
  const auto text = policy.print();
  return text.empty() ? "a policy that names nothing" : text;
}

[[noreturn]] void refuse_no_match(const Module& module, const std::string& what, const WrapPolicy& policy,
                                  const std::string& hint) {
  const auto types = types_in(module);
  const auto expected = types.empty() ? "a module with parameters, of which it has none" : "one of " + types;
  const auto names = names_in(module);
  const bool has_names = std::holds_alternative<WrapPolicy::Modules>(policy.rule()) && !names.empty();
  throw ConfigError("parallel", {.what = what + " matches no module of " + type_of(module),
                                 .expected = expected + (has_names ? ", or by name one of " + names : ""),
                                 .got = asked_for(policy),
                                 .hint = hint});
}

// As PyTorch's ModuleWrapPolicy, a set of types may have some that the model lacks.
bool may_have_idle_words(const WrapPolicy& policy, std::string_view option) {
  return std::holds_alternative<WrapPolicy::TypeNames>(policy.rule()) && option != kIgnored;
}

Chosen choose(const Module& module, const WrapPolicy& policy, const char* option) {
  Chosen chosen;
  std::visit(Chooser{module, chosen}, policy.rule());
  if (chosen.empty() && policy.must_match()) refuse_no_match(module, option, policy, hint_for(option));
  if (may_have_idle_words(policy, option)) return chosen;
  if (const auto word = std::visit(IdleWord{module}, policy.rule()))
    refuse_no_match(module, "\"" + *word + "\" of " + option, policy, hint_for(option));
  return chosen;
}

// Walks the modules and hands each parameter to its unit.
class Planner {
 public:
  Planner(const Chosen& chosen, const Chosen& ignored) : chosen_(chosen), ignored_(ignored), units_(1) {}

  void visit(const Module& module, const std::string& path, std::size_t unit) {
    const bool is_whole = units_[unit].is_whole || ignored_.contains(&module);
    if (ignored_.contains(&module) || (chosen_.contains(&module) && !is_whole)) unit = unit_of(module, path);
    units_[unit].is_whole = is_whole;
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      const auto name = path.empty() ? item.key() : path + "." + item.key();
      if (item.value().defined() && is_sharded_type(item.value().scalar_type()))
        own(name, item.value(), unit);
    }
    for (const auto& child : module.named_children())
      visit(*child.value(), path.empty() ? child.key() : path + "." + child.key(), unit);
  }

  std::vector<PlannedUnit> take() {
    for (const auto* known : order_) {
      const auto& [name, tensor, unit] = owners_.at(known);
      units_[unit].members.push_back({name, tensor});
    }
    std::erase_if(units_, [&](const auto& unit) { return !unit.name.empty() && unit.members.empty(); });
    return std::move(units_);
  }

 private:
  struct Owner {
    std::string name;
    at::Tensor tensor;
    std::size_t unit;
  };

  // A module that stands in several places is one.
  std::size_t unit_of(const Module& module, const std::string& path) {
    const auto [found, is_new] = numbers_.emplace(&module, units_.size());
    if (is_new) units_.push_back({.name = path.empty() ? "model" : path});
    return found->second;
  }

  void own(const std::string& name, const at::Tensor& tensor, std::size_t unit) {
    const auto [found, is_new] = owners_.try_emplace(tensor.unsafeGetTensorImpl(), Owner{name, tensor, unit});
    if (is_new) order_.push_back(tensor.unsafeGetTensorImpl());
    if (found->second.unit != unit) found->second.unit = 0;
  }

  const Chosen& chosen_;
  const Chosen& ignored_;
  std::vector<PlannedUnit> units_;
  std::unordered_map<const Module*, std::size_t> numbers_;
  std::unordered_map<const at::TensorImpl*, Owner> owners_;
  std::vector<const at::TensorImpl*> order_;
};

}  // namespace

std::vector<PlannedUnit> plan_units(const Module& module, const WrapPolicy& policy,
                                    const std::optional<WrapPolicy>& ignored, const std::string& option) {
  const auto chosen = choose(module, policy, option.c_str());
  const auto whole = ignored ? choose(module, *ignored, kIgnored) : Chosen();
  Planner planner(chosen, whole);
  planner.visit(module, "", 0);
  return planner.take();
}

namespace {

// Repeated blocks outside of `chosen` ones that are too small for a unit, by kind: how many, and the largest
// one's elements.
using SmallBlocks = std::map<std::string, std::pair<std::size_t, std::int64_t>>;

void find_small_blocks(const Module& module, const Chosen& chosen, SmallBlocks& small) {
  std::map<std::string, SmallBlocks::mapped_type> kinds;
  for (const auto& child : module.children()) {
    if (chosen.contains(child.get())) continue;
    auto& [count, largest] = kinds[type_of(*child)];
    if (!child->children().empty()) ++count;  // nobody would shard a single small layer alone
    largest = std::max(largest, elements_of(*child));
    find_small_blocks(*child, chosen, small);
  }
  for (const auto& [kind, found] : kinds) {
    const auto& [count, largest] = found;
    if (count < 2 || largest == 0 || largest >= kSmallestBlock) continue;
    auto& [all, most] = small[kind];
    all += count;
    most = std::max(most, largest);
  }
}

// Where a user names types: "zero_optimization.leaf_module" has several members.
std::string naming_option(const std::string& option) {
  return option.find("leaf_module") == std::string::npos
             ? option
             : "zero_optimization.leaf_module.classes of DeepSpeed's file";
}

// Such as "4 Block of at most 272 elements".
std::string list_small_blocks(const Module& module) {
  Chosen chosen;
  choose_repeated(module, chosen);
  SmallBlocks small;
  find_small_blocks(module, chosen, small);
  std::string list;
  for (const auto& [kind, found] : small) {
    list += (list.empty() ? "" : ", ") + std::to_string(found.first) + " " + kind + " of at most " +
            std::to_string(found.second) + " elements";
  }
  return list;
}

std::string of_small_blocks(const Module& module, const std::string& option) {
  const auto list = list_small_blocks(module);
  if (list.empty()) return {};
  return option + ": these repeated blocks have less than " + std::to_string(kSmallestBlock) +
         " elements, and are sharded together with what is around them: " + list +
         "; to shard them block by block, name their type in " + naming_option(option);
}

std::string hint_without_blocks(const Module& module, const WrapPolicy& policy) {
  if (std::holds_alternative<WrapPolicy::RepeatedBlocks>(policy.rule())) {
    if (const auto list = list_small_blocks(module); !list.empty())
      return "repeated_blocks leaves out blocks of less than " + std::to_string(kSmallestBlock) +
             " elements, here " + list + "; to checkpoint them, name their type";
  }
  return "a part without parameters, or of a single block, is checkpointed where it is called: "
         "x = ls::checkpoint([this](const at::Tensor& x) { return part->forward(x); }, x)";
}

}  // namespace

std::string note_on_units(const Module& module, const WrapPolicy& policy, const std::string& option) {
  if (std::holds_alternative<WrapPolicy::RepeatedBlocks>(policy.rule()))
    return of_small_blocks(module, option);
  const auto word =
      may_have_idle_words(policy, option) ? std::visit(IdleWord{module}, policy.rule()) : std::nullopt;
  return word ? option + ": no module of " + type_of(module) + " is a \"" + *word + "\"" : std::string();
}

std::vector<PlannedUnit> with_persistent_unit(std::vector<PlannedUnit> units, const ShardingPlan& plan) {
  PlannedUnit persistent{.name = "persistent", .is_persistent = true};
  auto left = plan.most_persistent_elements;
  for (auto& unit : units) {
    if (unit.is_whole) continue;
    std::vector<ShardedTensor> others;
    for (auto& member : unit.members) {
      const auto elements = member.tensor.numel();
      const bool is_small = elements <= plan.persistent_elements && elements <= left;
      if (is_small) left -= elements;
      (is_small ? persistent.members : others).push_back(std::move(member));
    }
    unit.members = std::move(others);
  }
  if (!persistent.members.empty()) units.push_back(std::move(persistent));
  return units;
}

std::vector<CheckpointedBlock> plan_blocks(const Module& module, const WrapPolicy& policy) {
  constexpr const char* option = "activation_checkpointing";
  const auto chosen = choose(module, policy, option);
  const Chosen ignored;
  Planner planner(chosen, ignored);
  planner.visit(module, "", 0);
  const auto units = planner.take();
  if (units.size() < 2) refuse_no_match(module, option, policy, hint_without_blocks(module, policy));
  std::vector<CheckpointedBlock> blocks;
  for (const auto& unit : units) {
    auto& block = blocks.emplace_back(CheckpointedBlock{.name = unit.name});
    for (const auto& member : unit.members)
      block.parameters.push_back({.name = member.name, .tensor = member.tensor});
  }
  return blocks;
}

std::unordered_set<const at::TensorImpl*> batch_norm_tensors(const Module& module) {
  std::unordered_set<const at::TensorImpl*> tensors;
  for_each_part(module, [&](const Module& part) {
    if (type_of(part).find("BatchNorm") == std::string::npos) return;
    for (const auto& tensor : part.parameters(/*recurse=*/false))
      tensors.insert(tensor.unsafeGetTensorImpl());
    for (const auto& tensor : part.buffers(/*recurse=*/false)) tensors.insert(tensor.unsafeGetTensorImpl());
  });
  return tensors;
}

}  // namespace lockstep::detail
