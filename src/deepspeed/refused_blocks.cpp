#include "deepspeed/refused_blocks.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace lockstep::deepspeed {
namespace {

const Hjson* member_at(const Hjson& block, std::string_view key) {
  const auto found = std::ranges::find(block.members, key, &HjsonMember::key);
  return found == block.members.end() ? nullptr : &found->value;
}

bool is_true(const Hjson& value) { return value.text == "true" || value.text == "True" || value.text == "1"; }

/// As DeepSpeed reads a block whose `enabled` is false unless given.
bool is_enabled(const Hjson& block) {
  if (block.kind != Hjson::Kind::kObject) return is_true(block);
  const auto* const enabled = member_at(block, "enabled");
  return enabled != nullptr && is_true(*enabled);
}

/// Such as {"sparse_pruning": {"shared_parameters": {"enabled": true}}}.
bool is_enabled_inside(const Hjson& block) {
  const auto is_inside = [](const HjsonMember& member) {
    return member.value.kind == Hjson::Kind::kObject && is_enabled_inside(member.value);
  };
  return is_enabled(block) || std::ranges::any_of(block.members, is_inside);
}

/// Blocks without such a switch.
bool is_there(const Hjson& block) {
  if (block.kind == Hjson::Kind::kObject)
    return !block.members.empty() && (member_at(block, "enabled") == nullptr || is_enabled(block));
  return block.kind != Hjson::Kind::kNull && block.text != "false";
}

/// {"enabled": true, "data_sampling": {"enabled": true, "curriculum_learning": {"enabled": true}}}
bool orders_or_drops_data(const Hjson& block) {
  const auto uses = [&](std::string_view part, std::string_view technique) {
    const auto* const outer = member_at(block, part);
    const auto* const inner = outer == nullptr ? nullptr : member_at(*outer, technique);
    return inner != nullptr && is_enabled(*outer) && is_enabled(*inner);
  };
  return is_enabled(block) &&
         (uses("data_sampling", "curriculum_learning") || uses("data_routing", "random_ltd"));
}

bool is_several(const Hjson& size) { return std::strtod(size.text.c_str(), nullptr) > 1; }

bool splits_tensors(const Hjson& block) {
  return std::ranges::any_of(block.members, [](const auto& member) {
    return (member.key == "autotp_size" || member.key == "tp_size") && is_several(member.value);
  });
}

bool is_past_start(const Hjson& iteration) {
  return iteration.text != "-1" && iteration.kind != Hjson::Kind::kNull;
}

constexpr std::array kBlocks{
    RefusedBlock{"compression_training", "the model would train uncompressed",
                 "remove it, and compress the model when it is trained; DeepSpeed 0.19 has removed it",
                 is_enabled_inside},
    RefusedBlock{"curriculum_learning", "the samples would come in another order and size",
                 "remove it, and order them in the data set or its sampler; DeepSpeed 0.19 has removed it",
                 is_enabled},
    RefusedBlock{"data_efficiency", "the samples would come in another order and size",
                 "switch it off, and order them in the data set or its sampler", orders_or_drops_data},
    RefusedBlock{"elasticity", "the batch size would be another one",
                 "remove it, and give train_batch_size or train_micro_batch_size_per_gpu; DeepSpeed 0.19 has "
                 "removed it",
                 is_enabled},
    RefusedBlock{"progressive_layer_drop", "no layer would be dropped",
                 "remove it, and drop layers in the model's forward; DeepSpeed 0.19 has removed it",
                 is_enabled},
    RefusedBlock{"quantize_training", "the weights would not be quantised",
                 "remove it, and quantise the model when it is trained; DeepSpeed 0.19 has removed it",
                 is_enabled},
    RefusedBlock{"scheduler.params.last_batch_iteration", "the schedule would begin at its start",
                 "remove it, or say -1; a run that goes on from a checkpoint goes on in its schedule",
                 is_past_start},
    RefusedBlock{"sequence_parallel_size", "every rank would get samples of its own", "remove it, or say 1",
                 is_several},
    RefusedBlock{"sparse_attention", "attention would be the model's own",
                 "remove it, and build a model whose attention is sparse; DeepSpeed 0.19 has removed it",
                 is_there},
    RefusedBlock{"tensor_parallel", "every rank would get samples of its own",
                 "remove it, or say autotp_size 1", splits_tensors},
    RefusedBlock{"weight_quantization", "the weights would not be quantised",
                 "remove it, and quantise the model when it is trained", is_there},
    RefusedBlock{"zero_optimization.zenflow", "all gradients would be applied at once",
                 "remove it; offload_optimizer works without it", is_there},
};

}  // namespace

const RefusedBlock* refused_block(std::string_view path) {
  const auto found = std::ranges::find(kBlocks, path, &RefusedBlock::path);
  return found == kBlocks.end() ? nullptr : &*found;
}

}  // namespace lockstep::deepspeed
