// The state of modules and of random generators as StateTrees.
#include <lockstep/state/module_state.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <c10/util/StringUtil.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "state/module_tensors.h"

namespace lockstep {
namespace {

using detail::TensorKinds;

constexpr std::string_view kNone = "none";

void add_clause(std::string& text, const std::string& name, std::string_view expected, std::string_view got) {
  text.append(text.empty() ? "" : "; ").append(name);
  text.append(": expected ").append(expected).append(", got ").append(got);
}

std::string in_a_row(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

// Whether a tensor of the kind `offered` can be loaded into one of the kind `own`. Floating-point types such
// as in "tensor Float [3]" and "tensor BFloat16 [3]" fit, since copying casts as in PyTorch: a model in 16
// bits may have been saved from wider shards. 8-bit types have scales, and are not cast.
bool fits(const std::string& own, const std::string& offered) {
  if (own == offered) return true;
  const auto shape_of = [](const std::string& kind) -> std::string {
    for (const std::string_view type :
         {"tensor Float ", "tensor Double ", "tensor BFloat16 ", "tensor Half "}) {
      if (kind.starts_with(type)) return kind.substr(type.size());
    }
    return {};
  };
  const auto shape = shape_of(own);
  return !shape.empty() && shape == shape_of(offered);
}

/// The prefix that all names of `shorter` have in `longer`, such as "module." of a model that was saved
/// within its wrapper. Empty where there is none.
std::string prefix_of(const TensorKinds& longer, const TensorKinds& shorter) {
  if (shorter.empty()) return {};
  const auto& first = shorter.begin()->first;
  for (const auto& [name, kind] : longer) {
    if (!name.ends_with("." + first)) continue;
    const auto prefix = name.substr(0, name.size() - first.size());
    const auto has = [&](const auto& entry) { return longer.contains(prefix + entry.first); };
    if (std::ranges::all_of(shorter, has)) return prefix;
  }
  return {};
}

std::string way_to_fit(const TensorKinds& own, const TensorKinds& offered) {
  if (const auto prefix = prefix_of(offered, own); !prefix.empty())
    return "its names are the module's behind \"" + prefix +
           "\": save the state_dict of the inner module, or take the prefix off in Python, by "
           "name.removeprefix(\"" +
           prefix + "\"), or in C++, by the pattern of an ls::Rename";
  if (const auto prefix = prefix_of(own, offered); !prefix.empty())
    return "the module's names are these behind \"" + prefix +
           "\": load into that inner module, or put the prefix before each name";
  return "load what was saved for the same module, once it has all that its configure_model() or setup() "
         "builds";
}

}  // namespace

void warn_of(const IncompatibleKeys& keys, const std::string& source) {
  const auto say = [](const std::string& who, const std::vector<std::string>& names) {
    if (!names.empty()) log_warning("found keys that are " + who + ": " + in_a_row(names));
  };
  say("in the model but not in " + source, keys.missing_keys);
  say("not in the model but in " + source, keys.unexpected_keys);
}

namespace detail {

std::string tensor_kind(at::ScalarType type, at::IntArrayRef shape) {
  return c10::str("tensor ", type, ' ', shape);
}

IncompatibleKeys match_tensors(const TensorKinds& own, const TensorKinds& offered, bool strict,
                               std::string_view what, std::string_view where) {
  IncompatibleKeys keys;
  std::string misfits;
  for (const auto& [name, kind] : own) {
    const auto found = offered.find(name);
    if (found == offered.end()) keys.missing_keys.push_back(name);
    if (found != offered.end() && !fits(kind, found->second)) add_clause(misfits, name, kind, found->second);
  }
  for (const auto& [name, kind] : offered) {
    if (!own.contains(name)) keys.unexpected_keys.push_back(name);
  }
  if (strict) {
    for (const auto& name : keys.missing_keys) add_clause(misfits, name, own.at(name), kNone);
    for (const auto& name : keys.unexpected_keys) add_clause(misfits, name, kNone, offered.at(name));
  }
  if (misfits.empty()) return keys;
  throw CheckpointError("state", {.what = std::string(what) + " does not fit the module: " + misfits,
                                  .where = std::string(where),
                                  .hint = way_to_fit(own, offered)});
}

void copy_as_loaded(const StateTree& state, std::string_view name, const at::Tensor& target) {
  const auto& saved = state.get<at::Tensor>(name);
  const bool can_cast = saved.defined() && fits(tensor_kind(target.scalar_type(), target.sizes()),
                                                tensor_kind(saved.scalar_type(), saved.sizes()));
  if (!can_cast) return state.copy_to(name, target);
  const at::NoGradGuard no_grad;
  target.copy_(saved);
}

}  // namespace detail
}  // namespace lockstep

namespace lockstep::detail {
namespace {

bool has_bytes(at::ScalarType type) {
  try {
    (void)safetensors_dtype(type);
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

void require(const char* kind, const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  auto why = unstorable(tensor);
  if (!why && has_shared_elements(tensor))
    why = {
        .expected = "a tensor whose elements lie apart, so that they can be loaded again",
        .got = c10::str(tensor.toString(), " of sizes ", tensor.sizes(), " with strides ", tensor.strides())};
  if (!why) return;
  throw ConfigError(
      "state",
      {.what = kind + (" " + name) + " cannot be stored in a checkpoint",
       .expected = std::move(why.expected),
       .got = std::move(why.got),
       .hint = "keep it in a plain member, unregistered, and make it anew in the constructor; a Trainer "
               "with enable_checkpointing = false trains with it"});
}

}  // namespace

Unstorable unstorable(const at::Tensor& tensor) {
  const auto refused = [&](const char* expected) {
    return Unstorable{.expected = expected,
                      .got = tensor.is_nested() ? "a nested tensor" : tensor.toString()};
  };
  if (!tensor.defined()) return {.expected = "a dense tensor", .got = "an undefined tensor"};
  if (tensor.is_nested() || tensor.layout() != at::kStrided) return refused("a dense tensor");
  if (!has_bytes(tensor.scalar_type()))
    return refused("an element type that takes whole bytes, not quantised");
  return {};
}

void require_storable(const torch::nn::Module& module) {
  for (const auto& parameter : module.named_parameters())
    require("parameter", parameter.key(), parameter.value());
  for (const auto& buffer : module.named_buffers()) require("buffer", buffer.key(), buffer.value());
}

// Sorted by stride, each stride must be larger than the extent of the dimensions before it.
bool has_shared_elements(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // stride and number
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.size(dim) > 1) steps.emplace_back(tensor.stride(dim), tensor.size(dim) - 1);
  std::ranges::sort(steps);
  std::int64_t reached = 0;
  for (const auto& [stride, count] : steps) {
    if (stride <= reached) return true;
    reached += stride * count;
  }
  return false;
}

}  // namespace lockstep::detail

namespace lockstep {
namespace {

detail::TensorKinds kinds_in(const StateTree& state) {
  detail::TensorKinds kinds;
  for (const auto& [name, value] : state.entries()) kinds.emplace(name, value.describe());
  return kinds;
}

}  // namespace

StateTree module_state(const torch::nn::Module& module) {
  StateTree state;
  for (const auto& parameter : module.named_parameters()) {
    state.set(parameter.key(), parameter.value().detach());
  }
  for (const auto& buffer : module.named_buffers()) {
    if (buffer.value().defined()) state.set(buffer.key(), buffer.value().detach());
  }
  return state;
}

IncompatibleKeys load_module_state(torch::nn::Module& module, const StateTree& state, bool strict) {
  const auto own = module_state(module);
  auto keys = detail::match_tensors(kinds_in(own), kinds_in(state), strict, "the state",
                                    state.path().empty() ? "" : "state " + state.path());
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own.entries()) {
    if (state.contains(name)) std::get<at::Tensor>(tensor).copy_(state.get<at::Tensor>(name));
  }
  return keys;
}

std::span<const OptionName<StateDictType>> option_names(StateDictType) {
  static constexpr OptionName<StateDictType> kNames[] = {{"full", StateDictType::kFull},
                                                         {"sharded", StateDictType::kSharded}};
  return kNames;
}

namespace {

// A copy: also the shape and type that are expected.
at::Tensor state_of(at::Device device) { return detail::state_of_generator(generator_of(device)); }

}  // namespace

StateTree random_state(at::Device device) {
  StateTree state;
  state.set("cpu", state_of(at::kCPU));
  if (!device.is_cpu()) state.set("device", state_of(device));
  return state;
}

void load_random_state(const StateTree& state, at::Device device) {
  const auto wanted = state_of(at::kCPU);
  state.copy_to("cpu", wanted);
  if (!device.is_cpu() && state.contains("device")) {
    const auto of_device = state_of(device);
    state.copy_to("device", of_device);
    detail::set_state_of_generator(generator_of(device), of_device);
  }
  detail::set_state_of_generator(generator_of(at::kCPU), wanted);
}

}  // namespace lockstep
