// The tensors of a module and its parts, by name; their comparison, and that of whatever ranks must say
// alike, between ranks, and with what they were at set-up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/comm/communicator.h>
#include <lockstep/torch.h>

namespace lockstep::detail {

/// `module` itself and its children of any depth.
inline std::unordered_set<const torch::nn::Module*> parts_of(const torch::nn::Module& module) {
  std::unordered_set<const torch::nn::Module*> parts{&module};
  for (const auto& part : module.modules(/*include_self=*/false)) parts.insert(part.get());
  return parts;
}

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// A module's tensors in the order of registration; one that has several names comes once.
struct ModuleStates {
  explicit ModuleStates(const torch::nn::Module& module);
  std::vector<NamedTensor> parameters;
  std::vector<NamedTensor> buffers;
};

/// @throws ConfigError naming a tensor that one rank's values cannot be copied to: sparse, or with elements
/// that share memory
void require_writable(const ModuleStates& states);

/// Collective, blocking.
/// @throws CollectiveMismatch naming the first tensor whose name, shape, dtype, strides, kind of device or
/// requires_grad differs
void compare_states(const ModuleStates& states, const Communicator& comm);

/// Gives memory to what DeferredInit has put off.
void materialize_states(const ModuleStates& states);

/// Everything becomes rank 0's. Collective, blocking.
void broadcast_states(const ModuleStates& states, const Communicator& comm);

/// How users are told of a change.
struct ChangeWords {
  std::string set_up_for;  ///< "ddp"
  std::string hint;        ///< what is to be done before it is changed
};

/// @throws ConfigError: always
[[noreturn]] void refuse_change(const ChangeWords& words, const std::string& what, std::string expected,
                                std::string got);

/// Remembers which parameters and buffers a module has, and compares.
class ModuleLists {
 public:
  ModuleLists(const torch::nn::Module& module, const ModuleStates& states, ChangeWords words);

  const ChangeWords& words() const { return words_; }

  /// Looks at each of the first calls, and now and then later. No allocation but then. Nothing once the
  /// module is gone. @throws ConfigError naming what changed
  void check();

 private:
  void compare(const char* kind, const std::vector<NamedTensor>& now,
               const std::vector<NamedTensor>& then) const;

  std::weak_ptr<const torch::nn::Module> module_;
  ModuleStates then_;
  ChangeWords words_;
  std::int64_t calls_ = 0;
};

struct DifferenceWords {
  const char* what;  ///< "the ranks' modules differ"
  const char* hint;
};

/// Collective, blocking.
/// @throws CollectiveMismatch with the first line that differs from rank 0's, and that
void require_equal_across_ranks(const std::vector<std::string>& lines, const Communicator& comm,
                                const DifferenceWords& words);

}  // namespace lockstep::detail
