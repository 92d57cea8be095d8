#include <lockstep/parallel/autograd.h>

#include <algorithm>
#include <sstream>

#include <torch/torch.h>

#include <lockstep/base/error.h>

#include "parallel/autograd.h"

namespace lockstep {
namespace detail {

struct HookEntry {
  PostAccumulateGradHook call;
  bool is_removed = false;
};

// The hooks of one parameter. LibTorch never runs two backwards through one accumulator at once, so
// nothing is locked; a running hook may remove or register others.
class HookChain : public std::enable_shared_from_this<HookChain> {
 public:
  RemovableHandle add(PostAccumulateGradHook hook) { return add(std::move(hook), entries_); }
  RemovableHandle add_last(PostAccumulateGradHook hook) { return add(std::move(hook), last_entries_); }

  void run(const at::Tensor& parameter) {
    const RunScope scope(*this);
    run(entries_, parameter);
    run(last_entries_, parameter);
  }

  void sweep() {
    if (is_running_) return;
    for (auto* entries : {&entries_, &last_entries_})
      std::erase_if(*entries, [](const auto& entry) { return entry->is_removed; });
  }

 private:
  using Entries = std::vector<std::shared_ptr<HookEntry>>;  // addresses stay while hooks are added

  struct RunScope {
    explicit RunScope(HookChain& of) : chain(of.shared_from_this()) { chain->is_running_ = true; }
    ~RunScope() {
      chain->is_running_ = false;
      chain->sweep();
    }
    RunScope(const RunScope&) = delete;
    std::shared_ptr<HookChain> chain;
  };

  RemovableHandle add(PostAccumulateGradHook hook, Entries& entries) {
    entries.push_back(std::make_shared<HookEntry>(HookEntry{std::move(hook)}));
    return {weak_from_this(), entries.back()};
  }

  // Those registered meanwhile wait for the next backward.
  static void run(const Entries& entries, const at::Tensor& parameter) {
    const auto count = entries.size();
    for (std::size_t i = 0; i < count; ++i) {
      if (!entries[i]->is_removed) entries[i]->call(parameter);
    }
  }

  Entries entries_;
  Entries last_entries_;  // which run behind the others
  bool is_running_ = false;
};

namespace {

using Slot = std::unique_ptr<torch::autograd::PostAccumulateGradHook>;

// What stands in LibTorch's only slot of a parameter.
class ChainHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit ChainHook(Slot before) {
    if (!before) return;
    chain->add([first = std::shared_ptr(std::move(before))](const at::Tensor& t) { (*first)(t); });
  }
  void operator()(const at::Tensor& parameter) override { chain->run(parameter); }

  const std::shared_ptr<HookChain> chain = std::make_shared<HookChain>();
};

HookChain& chain_of(const at::Tensor& parameter) {
  auto& slot = torch::autograd::impl::post_acc_grad_hooks(parameter);
  if (auto* ours = dynamic_cast<ChainHook*>(slot.get())) return *ours->chain;
  auto hook = std::make_unique<ChainHook>(std::move(slot));
  auto& chain = *hook->chain;
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::move(hook));
  return chain;
}

void check_leaf(const at::Tensor& parameter) {
  if (parameter.defined() && parameter.is_leaf() && parameter.requires_grad()) return;
  const char* got = !parameter.defined()         ? "an undefined tensor"
                    : !parameter.requires_grad() ? "a tensor that does not require a gradient"
                                                 : "the result of an operator";
  throw ConfigError("parallel",
                    {.what = "register_post_accumulate_grad_hook: no gradient is accumulated here",
                     .expected = "a leaf that requires a gradient, such as a parameter",
                     .got = got,
                     .hint = "call set_requires_grad(true) before; for the results of operators "
                             "there is Tensor::register_hook"});
}

}  // namespace

RemovableHandle register_last_grad_hook(const at::Tensor& parameter, PostAccumulateGradHook hook) {
  check_leaf(parameter);
  return chain_of(parameter).add_last(std::move(hook));
}

namespace {

void check_all_used(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients) {
  std::ostringstream unused;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) continue;
    unused << (unused.tellp() > 0 ? ", " : "") << "none for parameter " << i << ' ' << parameters[i].sizes();
  }
  if (unused.tellp() == 0) return;
  throw ConfigError("parallel", {.what = "autograd_grad: the loss does not depend on every parameter",
                                 .expected = "a gradient for each of " + std::to_string(parameters.size()),
                                 .got = unused.str(),
                                 .hint = "set allow_unused = true to get undefined gradients for them"});
}

// That of a sum, for one, is an expanded scalar: its elements share one place in memory.
at::Tensor own_memory(const at::Tensor& gradient) {
  const bool is_shared =
      gradient.defined() && gradient.layout() == at::kStrided && !gradient.is_non_overlapping_and_dense();
  return is_shared ? gradient.contiguous() : gradient;
}

}  // namespace
}  // namespace detail

RemovableHandle::RemovableHandle(std::weak_ptr<detail::HookChain> chain,
                                 std::weak_ptr<detail::HookEntry> entry)
    : chain_(std::move(chain)), entry_(std::move(entry)) {}

void RemovableHandle::remove() noexcept {
  const auto chain = chain_.lock();
  if (const auto entry = entry_.lock()) entry->is_removed = true;
  if (chain) chain->sweep();
  *this = {};
}

ScopedHandle& ScopedHandle::operator=(ScopedHandle&& other) noexcept {
  if (this == &other) return *this;
  handle_.remove();
  handle_ = std::exchange(other.handle_, {});
  return *this;
}

RemovableHandle register_post_accumulate_grad_hook(const at::Tensor& parameter, PostAccumulateGradHook hook) {
  detail::check_leaf(parameter);
  return detail::chain_of(parameter).add(std::move(hook));
}

std::vector<at::Tensor> autograd_grad(const at::Tensor& loss, const std::vector<at::Tensor>& parameters,
                                      const AutogradGradOptions& options) {
  auto gradients = torch::autograd::grad({loss}, parameters, /*grad_outputs=*/{}, options.retain_graph,
                                         options.create_graph, /*allow_unused=*/true);
  if (!options.allow_unused) detail::check_all_used(parameters, gradients);
  std::ranges::transform(gradients, gradients.begin(), detail::own_memory);
  return gradients;
}

}  // namespace lockstep
