#include "parallel/module_lists.h"

#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

constexpr std::int64_t kAlwaysUntil = 10;  // calls that look at the module's lists, and then each
constexpr std::int64_t kEvery = 100;       // hundredth: that costs a microsecond per parameter

}  // namespace

void refuse_change(const ChangeWords& words, const std::string& what, std::string expected, std::string got) {
  throw ConfigError("parallel",
                    {.what = "the module changed after it was set up for " + words.set_up_for + ": " + what,
                     .expected = std::move(expected),
                     .got = std::move(got),
                     .hint = words.hint});
}

ModuleLists::ModuleLists(const torch::nn::Module& module, const ModuleStates& states, ChangeWords words)
    : module_(module.weak_from_this()), then_(states), words_(std::move(words)) {}

void ModuleLists::check() {
  const auto call = calls_++;
  if (call >= kAlwaysUntil && call % kEvery != 0) return;
  const auto module = module_.lock();
  if (!module) return;
  const ModuleStates now(*module);
  compare("parameter", now.parameters, then_.parameters);
  compare("buffer", now.buffers, then_.buffers);
}

void ModuleLists::compare(const char* kind, const std::vector<NamedTensor>& now,
                          const std::vector<NamedTensor>& then) const {
  for (std::size_t i = 0; i < std::max(now.size(), then.size()); ++i) {
    const bool is_same = i < now.size() && i < then.size() && now[i].name == then[i].name;
    if (is_same && now[i].tensor.is_same(then[i].tensor)) continue;
    const std::string prefix = std::string(kind) + " ";
    if (is_same) refuse_change(words_, prefix + now[i].name, "the tensor that was set up", "another one");
    const bool is_added = now.size() > then.size() || i >= then.size();
    if (is_added) refuse_change(words_, prefix + now[i].name, "not there", "added");
    refuse_change(words_, prefix + then[i].name, "there", "removed");
  }
}

}  // namespace lockstep::detail
