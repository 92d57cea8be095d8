// Where a checkpointed block begins and ends, though modules have no hooks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/dispatch/tensor_mark.h>
#include <lockstep/parallel/sharded/wrap_policy.h>

#include "parallel/activations/module_policies.h"

namespace torch::nn {
class Module;
}

namespace lockstep::detail {

/// Records each pass through a block: from the first operator that uses one of its parameters until the
/// first that uses one of another block's, or of none, or until backward. A block that is run twice in
/// a row is two passes. Only where gradients are taken.
class BlockSegments final : public UseHandler, public ModulePolicy {
 public:
  /// Blocks are the modules that `policy` chooses; the innermost, where they lie inside of each other.
  /// @throws ConfigError if it chooses none, or some are checkpointed already
  BlockSegments(const torch::nn::Module& module, const WrapPolicy& policy);
  ~BlockSegments() override;
  BlockSegments(const BlockSegments&) = delete;
  BlockSegments& operator=(const BlockSegments&) = delete;

  void announce(std::span<const TensorUse> uses) override;
  void before_use(OperatorCall&, std::span<const TensorUse>) override {}

  void mark_again() override;

  std::vector<std::string> block_names() const;

 private:
  struct Block {
    std::string name;
    std::vector<at::Tensor> parameters;
    int recorded = 0;  // passes
  };

  bool goes_on(std::size_t block, std::span<const TensorUse> uses) const;
  void begin(std::size_t block, const TensorMark* first);
  void mark();

  std::vector<Block> blocks_;  // the first is what belongs to none
  std::vector<std::unique_ptr<TensorMark>> marks_;
};

}  // namespace lockstep::detail
