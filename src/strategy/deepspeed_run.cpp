#include "strategy/deepspeed_run.h"

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/deepspeed/batch_sizes.h>
#include <lockstep/deepspeed/complete.h>

#include "strategy/deepspeed_effects.h"

namespace lockstep::detail {
namespace {

using deepspeed::Dtype;

std::filesystem::path file_of(const DeepSpeed& options) {
  if (!options.config.empty()) return options.config;
  return env::get("LOCKSTEP_DEEPSPEED_CONFIG_PATH").value_or("");
}

// Nothing for the default, which says nothing about what the user wants.
std::optional<Dtype> chosen_dtype(const PrecisionOptions& given) {
  if (std::holds_alternative<Fp16Mixed>(given) || std::holds_alternative<Fp16True>(given))
    return Dtype::kFp16;
  if (std::holds_alternative<Bf16Mixed>(given) || std::holds_alternative<Bf16True>(given))
    return Dtype::kBf16;
  if (std::holds_alternative<Fp64>(given)) return Dtype::kFp32;
  return std::nullopt;
}

}  // namespace

Dtype dtype_of(std::string_view precision) {
  if (precision.starts_with("16-")) return Dtype::kFp16;
  return precision.starts_with("bf16-") ? Dtype::kBf16 : Dtype::kFp32;
}

DeepSpeedRun deepspeed_run(const DeepSpeed& options) {
  const auto file = file_of(options);
  if (file.empty()) return {.config = deepspeed_config(options, Dtype::kFp32)};
  auto read = read_deepspeed_config(file);
  for (auto& sentence : without_effect(read.config)) read.warnings.push_back(std::move(sentence));
  return {.config = std::move(read.config), .warnings = std::move(read.warnings), .is_from_file = true};
}

// DeepSpeed's bf16 casts the model; its fp16 needs a scaler, which 16-true has not.
PrecisionOptions precision_of(const DeepSpeedConfig& config, const PrecisionOptions& given) {
  auto completed = config;
  complete(completed, {.precision = chosen_dtype(given)});
  const bool is_half = completed.fp16.enabled.value;
  if (is_half && !std::holds_alternative<Fp16Mixed>(given)) return Fp16Mixed{};
  if (completed.bf16.enabled.value && !chosen_dtype(given)) return Bf16True{};
  return given;
}

std::optional<std::int64_t> accumulation_of(const DeepSpeedConfig& config, int world_size,
                                            std::optional<std::int64_t> accumulate_grad_batches) {
  auto completed = config;
  complete(completed, {.accumulate_grad_batches = accumulate_grad_batches});
  const bool is_said = config.is_given("train_batch_size") ||
                       config.is_given("train_micro_batch_size_per_gpu") ||
                       config.is_given("gradient_accumulation_steps");
  if (!is_said) return accumulate_grad_batches;
  const bool has_batch = config.train_batch_size.value || config.train_micro_batch_size_per_gpu.value;
  if (!has_batch) return completed.gradient_accumulation_steps.value;
  return resolve_batch_sizes(completed, world_size).gradient_accumulation_steps;
}

}  // namespace lockstep::detail
