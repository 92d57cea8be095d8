#include "parallel/activations/block_segments.h"

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/parallel/dispatch/engine_hooks.h>
#include <lockstep/torch.h>

#include "parallel/activations/recorded_segment.h"
#include "parallel/dispatch/backward_thread.h"
#include "parallel/dispatch/operator_dispatch.h"

namespace lockstep::detail {
namespace {

// The number of passes through a block of which the second run is checked byte by byte.
constexpr int kCheckedPasses = 2;

// The pass that this thread records, or recorded last.
struct OpenPass {
  const BlockSegments* of = nullptr;
  std::size_t block = 0;
  const TensorMark* first = nullptr;  // used by its first operator
  bool has_left_first = false;        // the latest use was of others
};

OpenPass& open_pass() {
  thread_local OpenPass pass;
  return pass;
}

bool has_mark(std::span<const TensorUse> uses, const TensorMark* mark) {
  return std::ranges::any_of(uses, [mark](const TensorUse& use) { return use.mark == mark; });
}

bool is_checkpointed(const at::Tensor& tensor) {
  TensorUses uses;
  mark_table().find(tensor.storage().unsafeGetStorageImpl(), /*is_written=*/false, uses);
  return std::ranges::any_of(uses, [](const TensorUse& use) {
    return dynamic_cast<BlockSegments*>(&use.mark->handler()) != nullptr;
  });
}

void refuse_checkpointed(const std::string& name) {
  throw ConfigError("parallel", {.what = "activation checkpointing of " + name + ", which has it already",
                                 .expected = "one policy for all of a model",
                                 .hint = "give the strategy's activation_checkpointing, or call "
                                         "apply_activation_checkpointing(), not both"});
}

}  // namespace

BlockSegments::BlockSegments(const std::vector<CheckpointedBlock>& blocks) {
  install_autograd_engine();
  for (const auto& block : blocks) {
    blocks_.push_back({.name = block.name, .parameters = {}});
    for (const auto& member : block.parameters) {
      if (is_checkpointed(member.tensor)) refuse_checkpointed("parameter " + member.name);
      blocks_.back().parameters.push_back(member.tensor);
    }
  }
  mark();
}

BlockSegments::~BlockSegments() {
  if (open_pass().of != this) return;
  set_operator_recorder(nullptr);
  open_pass() = {};
}

void BlockSegments::mark() {
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    for (const auto& parameter : blocks_[block].parameters)
      marks_.push_back(std::make_unique<TensorMark>(parameter, *this, block));
  }
}

void BlockSegments::mark_again() {
  if (std::ranges::all_of(marks_, [](const auto& mark) { return mark->is_intact(); })) return;
  marks_.clear();
  mark();
}

// An operator that uses parameters of two blocks belongs to none.
void BlockSegments::announce(std::span<const TensorUse> uses) {
  if (!at::GradMode::is_enabled() || in_backward()) return;
  const auto first = uses.front().mark->tag();
  const auto is_same = [first](const TensorUse& use) { return use.mark->tag() == first; };
  const auto block = std::ranges::all_of(uses, is_same) ? first : 0;
  if (goes_on(block, uses)) {
    open_pass().has_left_first = !has_mark(uses, open_pass().first);
    return;
  }
  set_operator_recorder(nullptr);
  if (block != 0 && !has_saved_tensor_scope()) begin(block, uses.front().mark);
}

bool BlockSegments::goes_on(std::size_t block, std::span<const TensorUse> uses) const {
  const auto& pass = open_pass();
  if (!operator_recorder() || pass.of != this || pass.block != block) return false;
  return !(pass.has_left_first && has_mark(uses, pass.first));
}

void BlockSegments::begin(std::size_t block, const TensorMark* first) {
  open_pass() = {.of = this, .block = block, .first = first};
  set_operator_recorder(std::make_shared<RecordedSegment>(blocks_[block].recorded++ < kCheckedPasses));
}

std::vector<std::string> BlockSegments::block_names() const {
  std::vector<std::string> names;
  for (std::size_t block = 1; block < blocks_.size(); ++block) names.push_back(blocks_[block].name);
  return names;
}

}  // namespace lockstep::detail
