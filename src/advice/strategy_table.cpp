#include "advice/strategy_table.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/format.h"

namespace lockstep::detail {
namespace {

// DeepSpeed's stage3_max_live_parameters and stage3_max_reuse_distance, unless a file says otherwise.
constexpr double kLiveElements = 1e9;

// Of units: two are gathered; gradients of one are there, and those of two are being sent.
constexpr double kGatheredUnits = 2;
constexpr double kUnitsOfGradients = 3;

constexpr auto kShard = Kept::kSharded;
constexpr auto kAway = Kept::kOffloaded;

constexpr std::array kForms{
    StrategyForm{.name = "single_device",
                 .flags = "--trainer.devices 1 --trainer.strategy single_device",
                 .preferred = Preferred::kNever},
    StrategyForm{.name = "ddp", .flags = "--trainer.strategy ddp", .model_sent = 2},
    StrategyForm{.name = "fsdp NO_SHARD",
                 .flags = "--trainer.strategy fsdp --trainer.strategy.sharding_strategy NO_SHARD",
                 .parameters = kShard,
                 .optimizer = kShard,
                 .gathered = Gathered::kUnits,
                 .model_sent = 2,
                 .sharers = Sharers::kNobody,
                 .preferred = Preferred::kNever},
    StrategyForm{.name = "fsdp _HYBRID_SHARD_ZERO2",
                 .flags = "--trainer.strategy fsdp --trainer.strategy.sharding_strategy _HYBRID_SHARD_ZERO2",
                 .parameters = kShard,
                 .optimizer = kShard,
                 .gathered = Gathered::kModel,
                 .model_sent = 2,
                 .sharers = Sharers::kRanksOfNode,
                 .preferred = Preferred::kAcrossNodes},
    StrategyForm{.name = "deepspeed_stage_1",
                 .flags = "--trainer.strategy deepspeed_stage_1",
                 .parameters = kShard,
                 .optimizer = kShard,
                 .gathered = Gathered::kModelInPlace,
                 .model_sent = 2,
                 .preferred = Preferred::kNever},
    StrategyForm{.name = "deepspeed_stage_2",
                 .flags = "--trainer.strategy deepspeed_stage_2",
                 .parameters = kShard,
                 .optimizer = kShard,
                 .gathered = Gathered::kModelInPlace,
                 .model_sent = 2},
    StrategyForm{.name = "fsdp SHARD_GRAD_OP",
                 .flags = "--trainer.strategy fsdp --trainer.strategy.sharding_strategy SHARD_GRAD_OP",
                 .parameters = kShard,
                 .optimizer = kShard,
                 .gathered = Gathered::kModel,
                 .model_sent = 2},
    StrategyForm{.name = "deepspeed_stage_3",
                 .flags = "--trainer.strategy deepspeed_stage_3",
                 .parameters = kShard,
                 .optimizer = kShard,
                 .gathered = Gathered::kLive,
                 .model_sent = 3,
                 .preferred = Preferred::kNever},
    StrategyForm{.name = "fsdp HYBRID_SHARD",
                 .flags = "--trainer.strategy fsdp --trainer.strategy.sharding_strategy HYBRID_SHARD",
                 .parameters = kShard,
                 .optimizer = kShard,
                 .gathered = Gathered::kUnits,
                 .model_sent = 3,
                 .sharers = Sharers::kRanksOfNode,
                 .preferred = Preferred::kAcrossNodes},
    StrategyForm{.name = "fsdp FULL_SHARD",
                 .flags = "--trainer.strategy fsdp",
                 .parameters = kShard,
                 .optimizer = kShard,
                 .gathered = Gathered::kUnits,
                 .model_sent = 3},
    StrategyForm{.name = "fsdp FULL_SHARD, activations computed again",
                 .flags = "--trainer.strategy fsdp --trainer.strategy.activation_checkpointing true",
                 .parameters = kShard,
                 .optimizer = kShard,
                 .gathered = Gathered::kUnits,
                 .model_sent = 3,
                 .checkpoints_activations = true},
    StrategyForm{.name = "deepspeed_stage_2_offload",
                 .flags = "--trainer.strategy deepspeed_stage_2_offload",
                 .parameters = kAway,
                 .optimizer = kAway,
                 .gathered = Gathered::kModel,
                 .model_sent = 2,
                 .computes = Computes::kOnDevice},
    StrategyForm{.name = "deepspeed_stage_2_offload, nvme",
                 .flags = "--trainer.strategy deepspeed_stage_2_offload "
                          "--trainer.strategy.offload_optimizer_device nvme "
                          "--trainer.strategy.nvme_path DIR",
                 .parameters = kShard,
                 .optimizer = kAway,
                 .gathered = Gathered::kModelInPlace,
                 .model_sent = 2,
                 .computes = Computes::kOnCpu},
    StrategyForm{.name = "deepspeed_stage_3_offload",
                 .flags = "--trainer.strategy deepspeed_stage_3_offload",
                 .parameters = kAway,
                 .optimizer = kAway,
                 .gathered = Gathered::kLive,
                 .model_sent = 3,
                 .preferred = Preferred::kNever,
                 .computes = Computes::kOnDevice},
    StrategyForm{
        .name = "deepspeed_stage_3_offload_nvme",
        .flags = "--trainer.strategy deepspeed_stage_3_offload_nvme --trainer.strategy.nvme_path DIR",
        .parameters = kAway,
        .optimizer = kAway,
        .gathered = Gathered::kLive,
        .model_sent = 3,
        .preferred = Preferred::kNever,
        .computes = Computes::kOnCpu},
    StrategyForm{.name = "fsdp_cpu_offload",
                 .flags = "--trainer.strategy fsdp_cpu_offload",
                 .parameters = kAway,
                 .optimizer = kAway,
                 .gathered = Gathered::kUnits,
                 .model_sent = 3},
    StrategyForm{
        .name = "fsdp_cpu_offload, activations computed again",
        .flags = "--trainer.strategy fsdp_cpu_offload --trainer.strategy.activation_checkpointing true",
        .parameters = kAway,
        .optimizer = kAway,
        .gathered = Gathered::kUnits,
        .model_sent = 3,
        .checkpoints_activations = true},
};

BytesPerParameter kept_bytes(Kept kept, double bytes) {
  if (kept == Kept::kOffloaded) return {};
  return kept == Kept::kWhole ? BytesPerParameter{.whole = bytes} : BytesPerParameter{.shared = bytes};
}

double live_share(double parameters) { return std::min(1.0, kLiveElements / parameters); }

BytesPerParameter gathered_bytes(Gathered gathered, double bytes, double parameters) {
  switch (gathered) {
    case Gathered::kNothing:
      break;
    case Gathered::kUnits:
      return {.of_unit = kGatheredUnits * bytes, .of_root = bytes};
    case Gathered::kModel:
      return {.whole = bytes};
    case Gathered::kModelInPlace:
      return {.whole = bytes, .shared = -bytes};
    case Gathered::kLive:
      return {.whole = bytes * live_share(parameters)};
  }
  return {};
}

// Whole parameters are cast where something else is computed in; shards are gathered, and their gradients
// sent, unless one rank has all of them in the type that it computes in.
BytesPerParameter buffer_bytes(const StrategyForm& form, const ElementBytes& element,
                               const ModelSpread& model, bool on_device) {
  const bool is_cast = element.computed != element.kept;
  if (form.parameters == Kept::kWhole) {
    const bool has_buckets = on_device && form.model_sent > 0;
    return {.whole = (is_cast ? element.computed : 0) + (has_buckets ? element.kept : 0)};
  }
  const bool is_there = !on_device || form.parameters == Kept::kSharded;
  if (model.ranks == 1 && !is_cast && is_there) return {};
  auto bytes = gathered_bytes(form.gathered, element.computed, model.parameters);
  if (model.ranks == 1 && form.gathered == Gathered::kModelInPlace) bytes = {.whole = element.computed};
  bytes.of_unit += kUnitsOfGradients * element.computed;
  return bytes;
}

}  // namespace

BytesPerParameter& BytesPerParameter::operator+=(const BytesPerParameter& other) {
  whole += other.whole;
  shared += other.shared;
  of_unit += other.of_unit;
  of_root += other.of_root;
  return *this;
}

double bytes_of(const BytesPerParameter& bytes, const ModelSpread& model) {
  return model.parameters * bytes.whole + model.parameters * bytes.shared / model.ranks +
         model.largest_unit * bytes.of_unit + model.root * bytes.of_root;
}

std::int64_t whole_bytes(double amount) {
  return amount < kBeyondInt64 ? static_cast<std::int64_t>(amount) : std::numeric_limits<std::int64_t>::max();
}

// What lives on from forward to backward is not gathered anew.
double model_sent(const StrategyForm& form, double parameters) {
  return form.gathered == Gathered::kLive ? form.model_sent - live_share(parameters) : form.model_sent;
}

std::span<const StrategyForm> strategy_forms() { return kForms; }

const StrategyForm& strategy_form(std::string_view name) {
  return *std::ranges::find(kForms, name, &StrategyForm::name);
}

BytesPerParameter StateBytes::sum() const {
  auto all = parameters;
  for (const auto& part : {gradients, optimizer, buffers}) all += part;
  return all;
}

StateBytes state_bytes(const StrategyForm& form, const ElementBytes& element, const ModelSpread& model,
                       bool on_device) {
  StateBytes bytes{.parameters = kept_bytes(form.parameters, element.kept),
                   .gradients = kept_bytes(form.parameters, element.kept),
                   .optimizer = kept_bytes(form.optimizer, element.optimizer),
                   .buffers = buffer_bytes(form, element, model, on_device)};
  // Gathers start from a copy of the shard in the type that is computed in.
  const bool has_copy =
      form.parameters == Kept::kSharded && element.computed < element.kept && model.ranks > 1;
  if (has_copy) bytes.parameters.shared += element.computed;
  return bytes;
}

}  // namespace lockstep::detail
