#include "strategy/deepspeed_effects.h"

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

struct Setting {
  const char* key;
  bool (*is_asked_for)(const DeepSpeedConfig&);
  const char* why = "yet";
};

bool keeps_states_otherwise(const DeepSpeedConfig& c) {
  const auto asks = [](const auto& section) {
    if constexpr (requires { section.fp32_optimizer_states; }) return !section.fp32_optimizer_states;
    return false;
  };
  return std::visit(asks, c.optimizer);
}

// They change speed, memory, what is printed or the last digits.
constexpr Setting kWithoutEffect[] = {
    {"zero_optimization.ignore_unused_parameters",
     [](const auto& c) {
       return !c.zero_optimization.ignore_unused_parameters && !refuses_unused_parameters(c);
     },
     "at stages 0 and 3"},
    {"activation_checkpointing.cpu_checkpointing",
     [](const auto& c) { return c.activation_checkpointing.cpu_checkpointing; },
     "on CPUs, whose memory activations are in already"},
    {"bf16.check_grad_overflow",
     [](const auto& c) {
       const int stage = c.zero_optimization.stage;
       return c.is_given("bf16.check_grad_overflow") && c.bf16.check_grad_overflow && stage != 1 &&
              stage != 2;
     },
     "at stages 0 and 3"},
    {"bf16.bf16_optimizer_states", [](const auto& c) { return c.bf16.bf16_optimizer_states; }},
    {"fp16.fp16_master_weights_and_grads",
     [](const auto& c) { return c.fp16.fp16_master_weights_and_grads; }},
    {"activation_checkpointing.number_checkpoints",
     [](const auto& c) { return c.activation_checkpointing.number_checkpoints.has_value(); },
     "but on buffers of DeepSpeed's that are not there"},
    {"aio.use_gds", [](const auto& c) { return c.aio.use_gds; }, "on CPUs"},
    {"managed_gradient_accumulation", [](const auto& c) { return !c.managed_gradient_accumulation; }},
    {"dataloader_drop_last", [](const auto& c) { return c.dataloader_drop_last; }},
    {"optimizer.params.ns_method", [](const auto& c) { return c.is_given("optimizer.params.ns_method"); }},
    {"optimizer.params.fp32_optimizer_states", &keeps_states_otherwise},
    {"sparse_gradients", [](const auto& c) { return c.sparse_gradients; }},
    {"comms_logger.debug", [](const auto& c) { return c.comms_logger.debug; }},
};

void refuse(const DeepSpeedConfig& config, const char* key, const char* expected) {
  throw ConfigError("deepspeed", {.what = config.named(key) + " is not there yet",
                                  .expected = expected,
                                  .got = "another value",
                                  .hint = "docs/deepspeed.md says what training acts on"});
}

}  // namespace

std::vector<std::string> without_effect(const DeepSpeedConfig& config) {
  if (config.torch_autocast.enabled) refuse(config, "torch_autocast.enabled", "false");
  std::vector<std::string> sentences;
  for (const auto& [key, is_asked_for, why] : kWithoutEffect) {
    if (is_asked_for(config)) sentences.push_back(config.named(key) + " has no effect " + why);
  }
  return sentences;
}

bool refuses_unused_parameters(const DeepSpeedConfig& config) {
  const auto& zero = config.zero_optimization;
  return !zero.ignore_unused_parameters && (zero.stage == 1 || zero.stage == 2);
}

// A gradient is there on all ranks, or on none.
void require_all_used(const DeepSpeedConfig& config, const Optimizer& optimizer,
                      std::span<const at::Tensor> trained) {
  std::string names;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const auto& [name, piece] = optimizer.parameters()[i];
    if (trained[i].requires_grad() && !piece.grad().defined()) names += (names.empty() ? "" : ", ") + name;
  }
  if (names.empty()) return;
  throw CommError("deepspeed",
                  {.what = "the losses of this step have not used some parameters",
                   .expected = "a gradient for every trained parameter, as " +
                               config.named("zero_optimization.ignore_unused_parameters") + " is false",
                   .got = "none for " + names + ", on any rank",
                   .hint = "set it to true, or freeze what the loss does not use"});
}

// Stages 2 and 3 add up what is averaged in the type of the shards, the others also in that of the model.
bool adds_up_otherwise(const DeepSpeedConfig& config, deepspeed::Dtype computed) {
  const auto& wanted = config.data_types.grad_accum_dtype;
  if (!wanted) return false;
  if (config.bf16.bf16_master_weights_and_grads) return *wanted != deepspeed::Dtype::kBf16;
  if (*wanted == deepspeed::Dtype::kFp32) return false;
  return config.zero_optimization.stage >= 2 || *wanted != computed;
}

}  // namespace lockstep::detail
