// Rules between keys of DeepSpeed's configuration, and advice on keys that have no effect beside others.
#include "deepspeed/read_config.h"

#include <algorithm>
#include <array>

#include <lockstep/base/error.h>

namespace lockstep {

namespace deepspeed {
namespace {

using Config = DeepSpeedConfig;

/// Settings that contradict each other, and what would be accepted.
struct Rule {
  std::vector<std::string> keys;  ///< keys that the error names with their values; the first one is at fault
  bool (*is_broken)(const Config&);
  std::string expected;
  std::string hint = {};
};

bool shards(const Config& c) { return c.zero_optimization.stage > 0; }
bool offloads_optimizer(const Config& c) {
  return c.zero_optimization.offload_optimizer.device != OffloadDevice::kNone;
}
bool is_on(const AutoOr<bool>& enabled) { return !enabled.is_auto && enabled.value; }

template <class T>
const T* optimizer(const Config& c) {
  return std::get_if<T>(&c.optimizer);
}

template <class T>
const T* scheduler(const Config& c) {
  return std::get_if<T>(&c.scheduler);
}

bool has_dynamic_scale(const Config& c) { return is_on(c.fp16.enabled) && c.fp16.loss_scale == 0.0; }

bool is_untested(const Config& c) {
  return shards(c) && !c.zero_allow_untested_optimizer &&
         (optimizer<Lamb>(c) != nullptr || optimizer<Sgd>(c) != nullptr);
}

bool has_amsgrad(const Config& c) {
  const auto has = [](const auto& o) {
    if constexpr (requires { o.amsgrad; }) return o.amsgrad;
    return false;
  };
  return std::visit(has, c.optimizer);
}

bool lacks_total_steps(const Config& c) {
  const auto lacks = [](const auto& s) {
    if constexpr (requires { s.total_num_steps; })
      return !s.total_num_steps.is_auto && !s.total_num_steps.value;
    return false;
  };
  return std::visit(lacks, c.scheduler);
}

bool has_coefficients_in_reverse(const Config& c) {
  const auto* lamb = optimizer<Lamb>(c);
  return lamb != nullptr && lamb->max_coeff < lamb->min_coeff;
}

/// Whether nesterov is set without momentum, or with dampening.
bool lacks_momentum(const Config& c) {
  const auto* sgd = optimizer<Sgd>(c);
  return sgd != nullptr && sgd->nesterov && (sgd->momentum <= 0.0 || sgd->dampening != 0.0);
}

/// Whether the run ends before its warm-up.
bool ends_early(const Config& c) {
  const auto ends = [](const auto& s) {
    if constexpr (requires { s.total_num_steps; })
      return s.total_num_steps.value && !s.warmup_num_steps.is_auto &&
             *s.total_num_steps.value < s.warmup_num_steps.value;
    return false;
  };
  return std::visit(ends, c.scheduler);
}

const std::string kMomentum = "momentum of at least 0 and below 1, or cycle_momentum false";

/// Whether OneCycle would give Adam a first beta that is none.
bool cycles_beyond(const Config& c, PerGroup OneCycle::*momentum) {
  const auto* const cycle = scheduler<OneCycle>(c);
  const auto is_none = [](double value) { return !(value >= 0.0 && value < 1.0); };
  return cycle != nullptr && cycle->cycle_momentum && std::ranges::any_of(cycle->*momentum, is_none);
}

bool lacks_path(OffloadDevice device, const std::optional<std::filesystem::path>& path) {
  return device == OffloadDevice::kNvme && (!path || path->empty());
}

bool uses_disk(const Config& c) {
  const auto& zero = c.zero_optimization;
  return shards(c) && (zero.offload_optimizer.device == OffloadDevice::kNvme ||
                       (zero.stage == 3 && zero.offload_param.device == OffloadDevice::kNvme));
}

bool has_odd_blocks(const Config& c) {
  const auto bytes = c.aio.block_size;
  return uses_disk(c) && (bytes < 1 || bytes % 4096 != 0 || bytes > (std::int64_t{1} << 30));
}

bool has_odd_queue(const Config& c) {
  return uses_disk(c) && (c.aio.queue_depth < 1 || c.aio.queue_depth > 4096);
}

/// Whether parameters have another type than fp16 and bf16 say.
bool has_other_param_dtype(const Config& c) {
  if (!c.data_types.param_dtype) return false;
  if (is_on(c.fp16.enabled)) return c.data_types.param_dtype != Dtype::kFp16;
  if (is_on(c.bf16.enabled)) return c.data_types.param_dtype != Dtype::kBf16;
  return false;
}

/// Whether gradients would be divided by a factor of 0 before they are summed.
bool divides_by_zero(const Config& c) {
  const auto& zero = c.zero_optimization;
  const bool is_unused = c.prescale_gradients || (zero.stage == 1 && zero.reduce_scatter);
  return c.gradient_predivide_factor == 0.0 && !is_unused;
}

bool is_below_stage_3(const Config& c) { return c.zero_optimization.stage < 3; }

const std::string kStage = "zero_optimization.stage";
const std::string kOffload = "zero_optimization.offload_optimizer.";

const std::vector<Rule>& rules() {
  static const std::vector<Rule> rules{
      {{"bf16.enabled", "fp16.enabled"},
       [](const Config& c) { return is_on(c.fp16.enabled) && is_on(c.bf16.enabled); },
       "one of them"},
      {{"amp.enabled"},
       [](const Config& c) { return is_on(c.amp.enabled); },
       "false: Apex is not there, and DeepSpeed 0.19 has removed it",
       "use fp16 or bf16"},
      {{"zero_optimization.legacy_stage1"},
       [](const Config& c) { return c.zero_optimization.legacy_stage1; },
       "false"},
      {{"zero_optimization.allgather_bucket_size"},
       [](const Config& c) { return shards(c) && c.zero_optimization.allgather_bucket_size % 2 != 0; },
       "an even number"},
      {{"zero_optimization.zero_hpz_partition_size", "zero_optimization.mics_shard_size"},
       [](const Config& c) {
         const auto& z = c.zero_optimization;
         return z.zero_hpz_partition_size > 1 && z.mics_shard_size > 0;
       },
       "one of them"},
      {{"zero_optimization.zero_quantized_gradients", "zero_optimization.mics_shard_size"},
       [](const Config& c) {
         return c.zero_optimization.zero_quantized_gradients && c.zero_optimization.mics_shard_size > 0;
       },
       "one of them"},
      {{kOffload + "ratio", kStage},
       [](const Config& c) {
         return c.zero_optimization.offload_optimizer.ratio < 1 && c.zero_optimization.stage < 3;
       },
       "stage 3 where ratio is below 1"},
      {{kOffload + "nvme_path", kOffload + "device"},
       [](const Config& c) {
         const auto& o = c.zero_optimization.offload_optimizer;
         return lacks_path(o.device, o.nvme_path);
       },
       "a folder"},
      {{"zero_optimization.offload_param.nvme_path", "zero_optimization.offload_param.device"},
       [](const Config& c) {
         const auto& o = c.zero_optimization.offload_param;
         return lacks_path(o.device, o.nvme_path);
       },
       "a folder"},
      {{"aio.block_size"}, has_odd_blocks, "bytes, a multiple of 4096 up to 1073741824, for device nvme"},
      {{"aio.queue_depth"}, has_odd_queue, "1 to 4096 for device nvme"},
      {{"prescale_gradients", "zero_optimization.reduce_scatter", kStage},
       [](const Config& c) {
         const auto& z = c.zero_optimization;
         return z.stage >= 2 && z.reduce_scatter && c.prescale_gradients &&
                c.gradient_allreduce_op == AllreduceOp::kMean;
       },
       "no prescale_gradients with reduce_scatter at stages 2 and 3"},
      {{"gradient_predivide_factor", "zero_optimization.reduce_scatter", kStage},
       [](const Config& c) {
         const auto& z = c.zero_optimization;
         return z.stage >= 2 && z.reduce_scatter && c.gradient_predivide_factor != 1.0 &&
                c.gradient_allreduce_op == AllreduceOp::kMean;
       },
       "1 with reduce_scatter at stages 2 and 3"},
      {{"gradient_predivide_factor"}, divides_by_zero, "a number other than 0"},
      {{"zero_optimization.compute_grad_norm", kStage, "gradient_clipping"},
       [](const Config& c) {
         const auto stage = c.zero_optimization.stage;
         const bool clips = !c.gradient_clipping.is_auto && c.gradient_clipping.value > 0.0;
         return !c.zero_optimization.compute_grad_norm && (stage == 0 || stage == 3 || clips);
       },
       "stage 1 or 2 and gradient_clipping 0"},
      {{"gradient_allreduce_op", kStage},
       [](const Config& c) {
         return c.gradient_allreduce_op == AllreduceOp::kSum && c.zero_optimization.stage == 3;
       },
       "mean at stage 3"},
      {{"fp16.loss_scale_window"},
       [](const Config& c) { return has_dynamic_scale(c) && c.fp16.loss_scale_window <= 0; },
       "> 0 when loss_scale is 0"},
      {{"fp16.min_loss_scale"},
       [](const Config& c) { return has_dynamic_scale(c) && c.fp16.min_loss_scale <= 0; },
       "> 0 when loss_scale is 0"},
      {{"fp16.fp16_master_weights_and_grads", kStage, kOffload + "device"},
       [](const Config& c) {
         return c.fp16.fp16_master_weights_and_grads && !(shards(c) && offloads_optimizer(c));
       },
       "stage 1, 2 or 3 with offload_optimizer"},
      {{"bf16.bf16_master_weights_and_grads", kStage, kOffload + "device"},
       [](const Config& c) {
         return c.bf16.bf16_master_weights_and_grads &&
                !(shards(c) && (offloads_optimizer(c) || c.bf16.bf16_optimizer_states));
       },
       "stage 1, 2 or 3, with offload_optimizer unless there is bf16_optimizer_states"},
      {{"bf16.bf16_optimizer_states", "bf16.bf16_master_weights_and_grads"},
       [](const Config& c) { return c.bf16.bf16_optimizer_states && !c.bf16.bf16_master_weights_and_grads; },
       "bf16_master_weights_and_grads as well"},
      {{"data_types.param_dtype", "fp16.enabled", "bf16.enabled"},
       has_other_param_dtype,
       "the type that fp16 or bf16 says"},
      {{"optimizer.params.amsgrad"}, has_amsgrad, "false"},
      {{"optimizer.params.max_coeff", "optimizer.params.min_coeff"},
       has_coefficients_in_reverse,
       "a largest trust ratio of at least the smallest one"},
      {{"optimizer.params.nesterov", "optimizer.params.momentum", "optimizer.params.dampening"},
       lacks_momentum,
       "a momentum above 0, and a dampening of 0"},
      {{"optimizer.type", kStage},
       is_untested,
       "Adam, AdamW, Adagrad, Lion or Muon with ZeRO",
       "or set zero_allow_untested_optimizer to true"},
      {{"fp16.loss_scale", "optimizer.type"},
       [](const Config& c) {
         return optimizer<Lamb>(c) != nullptr && is_on(c.fp16.enabled) && c.fp16.loss_scale != 0.0;
       },
       "0 with Lamb"},
      {{"scheduler.params.total_num_steps", "scheduler.type"}, lacks_total_steps, "a number of steps"},
      {{"scheduler.params.cycle_min_lr", "scheduler.type"},
       [](const Config& c) {
         return scheduler<OneCycle>(c) != nullptr && scheduler<OneCycle>(c)->cycle_min_lr.empty();
       },
       "a learning rate"},
      {{"scheduler.params.cycle_max_lr", "scheduler.type"},
       [](const Config& c) {
         return scheduler<OneCycle>(c) != nullptr && scheduler<OneCycle>(c)->cycle_max_lr.empty();
       },
       "a learning rate"},
      {{"scheduler.params.cycle_min_mom"},
       [](const Config& c) { return cycles_beyond(c, &OneCycle::cycle_min_mom); },
       kMomentum},
      {{"scheduler.params.cycle_max_mom"},
       [](const Config& c) { return cycles_beyond(c, &OneCycle::cycle_max_mom); },
       kMomentum},
  };
  return rules;
}

std::string values_of(const Config& config, const std::vector<std::string>& keys) {
  std::string text;
  for (const auto& key : keys) {
    const auto value = value_at(config, key);
    text += (text.empty() ? "" : ", ") + config.named(key) + " = " + (value.empty() ? "none" : value);
  }
  return text;
}

ConfigError refusal(const Config& config, const Rule& rule) {
  return {"deepspeed",
          {.what = rule.keys.front() +
                   (rule.keys.size() > 1 ? " does not go with " + rule.keys[1] : " is refused"),
           .expected = rule.expected,
           .got = values_of(config, rule.keys),
           .where = {},
           .hint = rule.hint}};
}

/// The section that the rule is about, of those that a run may leave unused; empty for other rules.
std::string unused_section(const Rule& rule) {
  for (const auto* const section : {"optimizer", "scheduler"}) {
    const auto is_in = [&](const std::string& key) { return key.starts_with(section + std::string(".")); };
    if (std::ranges::any_of(rule.keys, is_in)) return section;
  }
  return {};
}

struct Advice {
  std::string key;
  bool (*is_due)(const Config&);
  std::string text;
};

constexpr const char* kNotBelow3 = "has no effect below stage 3";

const std::vector<Advice>& all_advice() {
  static const std::vector<Advice> advice{
      {"zero_optimization.offload_param",
       [](const Config& c) {
         return c.zero_optimization.offload_param.device != OffloadDevice::kNone && is_below_stage_3(c);
       },
       kNotBelow3},
      {"zero_optimization.zero_hpz_partition_size",
       [](const Config& c) { return c.zero_optimization.zero_hpz_partition_size > 1 && is_below_stage_3(c); },
       kNotBelow3},
      {"zero_optimization.zero_quantized_weights",
       [](const Config& c) { return c.zero_optimization.zero_quantized_weights && is_below_stage_3(c); },
       kNotBelow3},
      {"zero_optimization.zero_quantized_nontrainable_weights",
       [](const Config& c) {
         return c.zero_optimization.zero_quantized_nontrainable_weights && is_below_stage_3(c);
       },
       kNotBelow3},
      {"zero_optimization.zero_quantized_gradients",
       [](const Config& c) { return c.zero_optimization.zero_quantized_gradients && is_below_stage_3(c); },
       kNotBelow3},
      {"zero_optimization.zeropp_loco_param",
       [](const Config& c) {
         return c.is_given("zero_optimization.zeropp_loco_param") &&
                !c.zero_optimization.zero_quantized_gradients;
       },
       "has no effect without zero_quantized_gradients"},
      {"zero_optimization.zeropp_loco_param",
       [](const Config& c) {
         return c.is_given("zero_optimization.zeropp_loco_param") &&
                c.zero_optimization.zero_quantized_gradients && is_below_stage_3(c);
       },
       kNotBelow3},
      {"zero_optimization.offload_optimizer",
       [](const Config& c) { return offloads_optimizer(c) && !shards(c); }, "has no effect at stage 0"},
      {"zero_optimization.offload_optimizer.device",
       [](const Config& c) {
         const auto& z = c.zero_optimization;
         return z.offload_optimizer.device == OffloadDevice::kNvme && shards(c) && z.stage < 3;
       },
       "nvme is taken for cpu by DeepSpeed below stage 3"},
      {"activation_checkpointing.partition_activations",
       [](const Config& c) { return c.activation_checkpointing.partition_activations; },
       "has no effect without model parallelism"},
      {"activation_checkpointing.contiguous_memory_optimization",
       [](const Config& c) {
         const auto& a = c.activation_checkpointing;
         return a.contiguous_memory_optimization && !a.partition_activations;
       },
       "has no effect; DeepSpeed wants partition_activations beside it"},
      {"activation_checkpointing.contiguous_memory_optimization",
       [](const Config& c) {
         const auto& a = c.activation_checkpointing;
         return a.contiguous_memory_optimization && a.partition_activations && !a.number_checkpoints;
       },
       "has no effect; DeepSpeed wants number_checkpoints beside it"},
      {"scheduler.params.total_num_steps", ends_early, "is less than warmup_num_steps"},
  };
  return advice;
}

}  // namespace

std::vector<std::string> advice(const DeepSpeedConfig& config) {
  std::vector<std::string> sentences;
  for (const auto& row : all_advice()) {
    if (row.is_due(config)) sentences.push_back(config.named(row.key) + " " + row.text);
  }
  return sentences;
}

void check_rules(DeepSpeedConfig& config) {
  for (const auto& rule : rules()) {
    if (!rule.is_broken(config)) continue;
    const auto section = unused_section(rule);
    if (section.empty()) throw refusal(config, rule);
    config.refused.emplace(section, refusal(config, rule));
  }
}

}  // namespace deepspeed

void validate(const DeepSpeedConfig& config) {
  for (const auto& rule : deepspeed::rules()) {
    if (rule.is_broken(config)) throw deepspeed::refusal(config, rule);
  }
}

}  // namespace lockstep
