#include <lockstep/fabric/flop_counter.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/parallel/wrap_policy.h>
#include <lockstep/torch.h>

#include <ATen/record_function.h>

#include "fabric/flop_formulas.h"
#include "parallel/dispatch/backward_thread.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// A module and those below it, by number: parents first. A module that stands in several places is one.
class ModuleTree {
 public:
  struct Node {
    std::string path, type;
    std::size_t parent;
    std::int64_t parameters;
    OperatorWork own = {};  // of operators that belong to no part of it
  };

  explicit ModuleTree(const torch::nn::Module& root) { add(root, "", 0); }

  const std::vector<Node>& nodes() const { return nodes_; }
  Node& node(std::size_t number) { return nodes_[number]; }

  /// The module that has a parameter with this memory, if any.
  std::optional<std::size_t> owner_of(const at::Tensor& tensor) const {
    if (!tensor.has_storage()) return std::nullopt;
    const auto found = owners_.find(tensor.storage().unsafeGetStorageImpl());
    return found == owners_.end() ? std::nullopt : std::optional(found->second);
  }

  /// The innermost module that has both, or is one of them.
  std::size_t common(std::size_t a, std::size_t b) const {
    while (a != b) (a > b ? a : b) = nodes_[std::max(a, b)].parent;
    return a;
  }

 private:
  void add(const torch::nn::Module& module, const std::string& path, std::size_t parent) {
    if (!known_.insert(&module).second) return;
    const auto number = nodes_.size();
    nodes_.push_back({.path = path,
                      .type = detail::type_name(typeid(module)),
                      .parent = parent,
                      .parameters = elements_of(module)});
    for (const auto& parameter : module.parameters(/*recurse=*/false)) {
      if (parameter.has_storage()) owners_.emplace(parameter.storage().unsafeGetStorageImpl(), number);
    }
    for (const auto& child : module.named_children())
      add(*child.value(), path.empty() ? child.key() : path + "." + child.key(), number);
  }

  static std::int64_t elements_of(const torch::nn::Module& module) {
    std::int64_t elements = 0;
    std::unordered_set<const at::TensorImpl*> seen;
    for (const auto& parameter : module.parameters()) {
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) elements += parameter.numel();
    }
    return elements;
  }

  std::vector<Node> nodes_;
  std::unordered_map<const void*, std::size_t> owners_;  // by the memory of parameters
  std::unordered_set<const torch::nn::Module*> known_;
};

}  // namespace

// What one counter has seen.
class detail::CountedWork {
 public:
  void add(const OperatorWork& work, std::optional<std::size_t> owner) {
    if (detail::in_backward()) {
      backward += work;
      return;
    }
    forward += work;
    if (tree) add_to_module(work, owner);
  }

  /// The module that an operator with these arguments belongs to, if any.
  std::optional<std::size_t> owner_of(c10::ArrayRef<const c10::IValue> arguments) const {
    if (!tree || detail::in_backward()) return std::nullopt;
    for (const auto& argument : arguments) {
      if (argument.isTensor()) {
        if (const auto owner = tree->owner_of(argument.toTensor())) return owner;
      } else if (argument.isTensorList()) {
        for (const at::Tensor& tensor : argument.toTensorVector()) {
          if (const auto owner = tree->owner_of(tensor)) return owner;
        }
      }
    }
    return std::nullopt;
  }

  std::vector<FlopCounter::ModuleWork> modules() const {
    if (!tree) return {};
    const auto& nodes = tree->nodes();
    std::vector<FlopCounter::ModuleWork> modules;
    for (const auto& [path, type, parent, parameters, own] : nodes)
      modules.push_back({.path = path, .type = type, .parameters = parameters, .work = own});
    modules.front().work += pending_;
    for (std::size_t i = nodes.size(); i-- > 1;) modules[nodes[i].parent].work += modules[i].work;
    return modules;
  }

  OperatorWork forward, backward;
  std::optional<ModuleTree> tree = {};

 private:
  // Work without an owner waits for the next one that has one.
  void add_to_module(const OperatorWork& work, std::optional<std::size_t> owner) {
    if (!owner) {
      pending_ += work;
      return;
    }
    tree->node(tree->common(latest_, *owner)).own += std::exchange(pending_, {});
    tree->node(*owner).own += work;
    latest_ = *owner;
  }

  std::size_t latest_ = 0;  // module that an operator belonged to
  OperatorWork pending_;
};

namespace {

// Watches the operators of one thread, for all of its counters.
class Watch {
 public:
  static Watch& of_this_thread() {
    thread_local Watch watch;
    return watch;
  }

  void add(detail::CountedWork& counter) {
    if (counters_.empty()) {
      handle_ = at::addThreadLocalCallback(
          at::RecordFunctionCallback(&begin, &end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
    }
    counters_.push_back(&counter);
  }

  void remove(detail::CountedWork& counter) {
    std::erase(counters_, &counter);
    std::erase_if(owners_, [&](const auto& owner) { return owner.first == &counter; });
    if (counters_.empty()) at::removeCallback(handle_);
  }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    if (is_operator(call)) of_this_thread().enter(call);
    return nullptr;
  }
  static void end(const at::RecordFunction& call, at::ObserverContext*) {
    if (is_operator(call)) of_this_thread().leave();
  }

  // A range that somebody measures has a name without a library.
  static bool is_operator(const at::RecordFunction& call) {
    return std::string_view(call.name()).find("::") != std::string_view::npos;
  }

  // Who calls with a stack gives all that is on it.
  static c10::ArrayRef<const c10::IValue> arguments_of(const at::RecordFunction& call) {
    const auto all = call.inputs();
    return all.slice(all.size() - std::min(all.size(), call.num_inputs()));
  }

  // What a counted operator calls is in its formula.
  void enter(const at::RecordFunction& call) {
    const auto arguments = arguments_of(call);
    if (depth_++ == 0) {
      work_ = {};
      owners_.clear();
      for (auto* counter : counters_) owners_.emplace_back(counter, counter->owner_of(arguments));
      since_ = Clock::now();
    }
    if (counted_depth_ > 0) return;
    const auto flops = detail::flops_of(call.name(), arguments);
    if (!flops) return;
    counted_depth_ = depth_;
    work_.macs += flops->macs;
    work_.other_flops += flops->other;
  }

  void leave() {
    if (depth_ == 0) return;
    if (counted_depth_ == depth_) counted_depth_ = 0;
    if (--depth_ > 0) return;
    work_.time = Clock::now() - since_;
    for (const auto& [counter, owner] : owners_) counter->add(work_, owner);
  }

  std::vector<detail::CountedWork*> counters_;
  at::CallbackHandle handle_ = {};
  int depth_ = 0;          // operators within operators
  int counted_depth_ = 0;  // of the one that has been counted; 0: none

  // Of the outermost one.
  OperatorWork work_;
  std::vector<std::pair<detail::CountedWork*, std::optional<std::size_t>>> owners_;
  Clock::time_point since_;
};

}  // namespace

OperatorWork& OperatorWork::operator+=(const OperatorWork& more) {
  macs += more.macs;
  other_flops += more.other_flops;
  time += more.time;
  return *this;
}

FlopCounter::FlopCounter() : work_(std::make_unique<detail::CountedWork>()) {
  // A thread's state is put back after each node of a graph.
  if (detail::in_backward())
    throw ConfigError("fabric", {.what = "a FlopCounter was made within a backward pass",
                                 .expected = "one from before it, which counts backward() apart"});
  Watch::of_this_thread().add(*work_);
}

FlopCounter::FlopCounter(const torch::nn::Module& module) : FlopCounter() { work_->tree.emplace(module); }

FlopCounter::~FlopCounter() { Watch::of_this_thread().remove(*work_); }

OperatorWork FlopCounter::forward() const { return work_->forward; }

OperatorWork FlopCounter::backward() const { return work_->backward; }

std::vector<FlopCounter::ModuleWork> FlopCounter::modules() const { return work_->modules(); }

double measure_flops(const std::function<at::Tensor()>& forward,
                     const std::function<at::Tensor(const at::Tensor&)>& loss_of) {
  const FlopCounter counter;
  const auto result = forward();
  if (loss_of) loss_of(result).backward();
  return 2 * (counter.forward().macs + counter.backward().macs);
}

}  // namespace lockstep
