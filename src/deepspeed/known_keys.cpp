#include "base/number_locale.h"
#include "deepspeed/section_reader.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>

#include <lockstep/base/error.h>

namespace lockstep::deepspeed {
namespace {

struct Note {
  std::string_view path;
  std::string_view text;
};

constexpr std::string_view kZero = "zero_optimization";

// Sections in which DeepSpeed ignores unknown keys. Sections below them are the same, unless they are strict.
constexpr std::array<std::string_view, 13> kLax{"",
                                                "aio",
                                                "activation_checkpointing",
                                                "flops_profiler",
                                                "checkpoint",
                                                "checkpoint.writer",
                                                "checkpoint.parallel_write",
                                                "data_types",
                                                "amp",
                                                "torch_autocast",
                                                "optimizer",
                                                "scheduler",
                                                "timers"};

constexpr std::array kUnsupported{
    Note{"amp.opt_level", "Apex is not there"},
    Note{"autotuning", "measure with the Tuner"},
    Note{"comet", "loggers of the Trainer do this"},
    Note{"compile", "there is no compiler of graphs"},
    Note{"datastates", "checkpoints have a format of their own"},
    Note{"eigenvalue", "models are not compressed"},
    Note{"expert_parallel", "there is no expert parallelism"},
    Note{"graph_harvesting", "there are no CUDA graphs"},
    Note{"hybrid_engine", "there is no inference engine"},
    Note{"log_level", "LOCKSTEP_LOG_LEVEL says it"},
    Note{"nebula", "checkpoints have a format of their own"},
    Note{"optimizer.legacy_fusion", "there is one kernel"},
    Note{"optimizer.params.foreach", "there is one kernel"},
    Note{"optimizer.params.fused", "there is one kernel"},
    Note{"pipeline", "there is no pipeline parallelism"},
    Note{"use_data_before_expert_parallelism", "there is no expert parallelism"},
    Note{"vocabulary_size", "it is used for a warning only"},
    Note{"wandb", "loggers of the Trainer do this"},
    Note{"zero_optimization.cpu_offload_use_pin_memory",
         "pin_memory of offload_param and offload_optimizer says it"},
    Note{"zero_optimization.grad_hooks", "it is in DeepSpeed's documents, not in its source"},
};

constexpr std::array kInstead{
    Note{"optimizer.params.learning_rate", "did you mean lr?"},
    Note{"optimizer.params.beta1", "did you mean betas?"},
    Note{"scheduler.params.warmup", "did you mean warmup_num_steps?"},
    Note{"scheduler.params.warmup_steps", "did you mean warmup_num_steps?"},
    Note{"optimizer.params.max_grad_norm", "use gradient_clipping, at the top level"},
};

std::string_view find(std::span<const Note> notes, std::string_view path) {
  const auto found = std::ranges::find(notes, path, &Note::path);
  return found == notes.end() ? std::string_view() : found->text;
}

enum class Form {
  kSame,        // another name of the same
  kDeprecated,  // the same, with a warning
  kCpu,         // deprecated: true is an offload section with device cpu
};

struct Alias {
  std::string_view section;
  std::string_view old_key;
  std::string_view new_key;
  Form form = Form::kSame;
};

constexpr std::array kAliases{
    Alias{"", "bfloat16", "bf16"},
    Alias{"aio", "thread_count", "intra_op_parallelism"},
    Alias{"bf16", "check_overflow", "check_grad_overflow"},
    Alias{kZero, "allgather_sequential", "stage3_allgather_sequential"},
    Alias{kZero, "cpu_offload", "offload_optimizer", Form::kCpu},
    Alias{kZero, "cpu_offload_param", "offload_param", Form::kCpu},
    Alias{kZero, "gather_16bit_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save"},
    Alias{kZero, "max_live_parameters", "stage3_max_live_parameters"},
    Alias{kZero, "max_reuse_distance", "stage3_max_reuse_distance"},
    Alias{kZero, "model_persistence_threshold", "stage3_model_persistence_threshold"},
    Alias{kZero, "module_granularity_threshold", "stage3_module_granularity_threshold"},
    Alias{kZero, "param_persistence_threshold", "stage3_param_persistence_threshold"},
    Alias{kZero, "prefetch_bucket_size", "stage3_prefetch_bucket_size"},
    Alias{kZero, "stage3_gather_fp16_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save",
          Form::kDeprecated},
    Alias{kZero, "use_all_reduce_for_fetch_params", "stage3_use_all_reduce_for_fetch_params"},
};

HjsonMember* find_member(Hjson& object, std::string_view key) {
  const auto found = std::ranges::find(object.members, key, &HjsonMember::key);
  return found == object.members.end() ? nullptr : &*found;
}

[[noreturn]] void refuse_both(const Alias& alias, const std::string& name, Place first, Place second) {
  throw ConfigError("deepspeed", {.what = std::string(alias.old_key) + " and " + std::string(alias.new_key) +
                                          " are names of the same setting",
                                  .expected = "one of them",
                                  .got = "both",
                                  .where = place_in(name, first) + " and " + place_in(name, second),
                                  .hint = {}});
}

/// An offload section for the CPU, or for no device.
Hjson cpu_section(const Hjson& old) {
  Hjson section{.kind = Hjson::Kind::kObject, .place = old.place};
  Hjson device{.kind = Hjson::Kind::kText, .text = old.text == "true" ? "cpu" : "none", .place = old.place};
  section.members.push_back({"device", old.place, std::move(device)});
  return section;
}

void rename(Hjson& section, const Alias& alias, const std::string& name, std::vector<std::string>& warnings) {
  auto* member = find_member(section, alias.old_key);
  if (member == nullptr) return;
  if (const auto* other = find_member(section, alias.new_key))
    refuse_both(alias, name, member->place, other->place);
  if (alias.form != Form::kSame)
    warnings.push_back(place_in(name, member->place) + ": " + member->key + " is deprecated; use " +
                       std::string(alias.new_key));
  member->key = alias.new_key;
  if (alias.form == Form::kCpu && member->value.kind == Hjson::Kind::kBool)
    member->value = cpu_section(member->value);
}

/// `zero_optimization: true` is stage 1.
void replace_legacy_zero(Hjson& root, const std::string& name, std::vector<std::string>& warnings) {
  auto* zero = root.find(kZero);
  if (zero == nullptr || zero->kind != Hjson::Kind::kBool) return;
  const std::string number = zero->text == "true" ? "1" : "0";
  warnings.push_back(place_in(name, zero->place) +
                     ": zero_optimization as true or false is deprecated; use {\"stage\": " + number + "}");
  Hjson stage{.kind = Hjson::Kind::kNumber, .text = number, .place = zero->place};
  zero->kind = Hjson::Kind::kObject;
  zero->members.push_back({"stage", zero->place, std::move(stage)});
}

}  // namespace

bool is_strict(std::string_view path) { return std::ranges::find(kLax, path) == kLax.end(); }
std::string_view unsupported(std::string_view path) { return find(kUnsupported, path); }
std::string_view instead_of(std::string_view path) { return find(kInstead, path); }

void rename_keys(Hjson& root, const std::string& name, std::vector<std::string>& warnings) {
  replace_legacy_zero(root, name, warnings);
  for (const auto& alias : kAliases) {
    auto* section = alias.section.empty() ? &root : root.find(alias.section);
    if (section != nullptr) rename(*section, alias, name, warnings);
  }
}

namespace {

const Hjson* member_at(const Hjson& block, std::string_view key) {
  const auto found = std::ranges::find(block.members, key, &HjsonMember::key);
  return found == block.members.end() ? nullptr : &found->value;
}

bool is_true(const Hjson& value) { return value.text == "true" || value.text == "True" || value.text == "1"; }

/// Whether a block is enabled: as in DeepSpeed, not unless `enabled` says so.
bool is_enabled(const Hjson& block) {
  if (block.kind != Hjson::Kind::kObject) return is_true(block);
  const auto* const enabled = member_at(block, "enabled");
  return enabled != nullptr && is_true(*enabled);
}

/// Whether a block inside is enabled, such as in {"sparse_pruning": {"shared_parameters": {"enabled":
/// true}}}.
bool is_enabled_inside(const Hjson& block) {
  const auto is_inside = [](const HjsonMember& member) {
    return member.value.kind == Hjson::Kind::kObject && is_enabled_inside(member.value);
  };
  return is_enabled(block) || std::ranges::any_of(block.members, is_inside);
}

/// Blocks without `enabled` are asked for when they are there.
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

bool is_several(const Hjson& size) {
  const lockstep::detail::NumbersWithPoint scope;
  return std::strtod(size.text.c_str(), nullptr) > 1;
}

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
