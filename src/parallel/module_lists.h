// Notices that a module holds other tensors than when it was set up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/module_states.h"

namespace lockstep::detail {

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

}  // namespace lockstep::detail
