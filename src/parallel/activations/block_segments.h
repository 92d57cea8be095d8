// Finds where a pass through a checkpointed block begins and ends by the uses of its parameters, since
// modules have no hooks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/dispatch/tensor_mark.h>

#include "parallel/activations/module_policies.h"

namespace lockstep::detail {

/// A parameter, and where it is in the module.
struct BlockParameter {
  std::string name;
  at::Tensor tensor;
};

/// A part of the model that is recomputed as a whole.
struct CheckpointedBlock {
  std::string name;  ///< of its module; empty: what belongs to no block
  std::vector<BlockParameter> parameters = {};
};

/// Records each pass through a block: from the first operator that uses one of its parameters until the
/// first that uses one of another block's, or of none, or until backward. A block that is run twice in
/// a row is two passes. Only where gradients are taken.
class BlockSegments final : public UseHandler, public ModulePolicy {
 public:
  /// The first of `blocks` stands for operators that belong to no block. @throws ConfigError if some are
  /// checkpointed already
  explicit BlockSegments(const std::vector<CheckpointedBlock>& blocks);
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
