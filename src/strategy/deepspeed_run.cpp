#include "strategy/deepspeed_run.h"

#include <algorithm>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/deepspeed/complete.h>

#include "deepspeed/read_config.h"
#include "strategy/deepspeed_effects.h"

namespace lockstep::detail {
namespace {

using deepspeed::Dtype;

// Nothing for the default, which says nothing about what the user wants, unless it is asked for.
std::optional<Dtype> chosen_dtype(const PrecisionOptions& given, bool is_asked_for) {
  if (is_asked_for && std::holds_alternative<Fp32>(given)) return Dtype::kFp32;
  if (std::holds_alternative<Fp16Mixed>(given) || std::holds_alternative<Fp16True>(given))
    return Dtype::kFp16;
  if (std::holds_alternative<Bf16Mixed>(given) || std::holds_alternative<Bf16True>(given))
    return Dtype::kBf16;
  if (std::holds_alternative<Fp64>(given)) return Dtype::kFp32;
  return std::nullopt;
}

class ScalerTexts final : public OptionVisitor {
 public:
  std::vector<std::pair<std::string, std::string>> fields;

  void visit_field(OptionField& field) override { fields.emplace_back(field.name(), field.print()); }
  void visit_choice(OptionChoice&) override {}
  void visit_group(std::string_view, std::string_view, const Members&) override {}
};

auto scaler_texts_of(Fp16Mixed options) {
  ScalerTexts texts;
  describe(texts, options);
  return std::move(texts.fields);
}

// The scaler is made of DeepSpeed's own settings.
void refuse_scaler_options(const PrecisionOptions& given) {
  const auto* const mixed = std::get_if<Fp16Mixed>(&given);
  if (mixed == nullptr) return;
  const auto texts = scaler_texts_of(*mixed), defaults = scaler_texts_of({});
  const auto [own, other] = std::ranges::mismatch(texts, defaults);
  if (own == texts.end()) return;
  throw ConfigError("deepspeed",
                    {.what = "precision." + own->first + " under strategy deepspeed",
                     .expected = "initial_scale_power, loss_scale, loss_scale_window, hysteresis or "
                                 "min_loss_scale: arguments of the strategy, or of fp16 in its file",
                     .got = own->first + " = " + own->second});
}

// For what is said of arguments: keys are those of the file that they come to.
void name_arguments(DeepSpeedConfig& config) {
  config.given = {{"zero_optimization.offload_param", "argument offload_parameters"},
                  {"zero_optimization.offload_optimizer", "argument offload_optimizer"},
                  {"zero_optimization.offload_optimizer.device", "argument offload_optimizer_device"},
                  {"activation_checkpointing.partition_activations", "an argument"},
                  {"activation_checkpointing.cpu_checkpointing", "an argument"},
                  {"activation_checkpointing.contiguous_memory_optimization", "an argument"}};
}

}  // namespace

std::filesystem::path deepspeed_file(const DeepSpeed& options) {
  if (!options.config.empty()) return options.config;
  return env::get("LOCKSTEP_DEEPSPEED_CONFIG_PATH").value_or("");
}

std::set<std::string> deepspeed_arguments_in(const std::map<std::string, std::string>& flags,
                                             const std::string& strategy) {
  const auto prefix = strategy + ".";
  std::set<std::string> given;
  for (const auto& [key, text] : flags) {
    if (key.starts_with(prefix)) given.insert(key.substr(prefix.size()));
    if (key == strategy && text.starts_with("deepspeed_stage_")) given.insert("stage");
  }
  return given;
}

Dtype dtype_of(std::string_view precision) {
  if (precision.starts_with("16-")) return Dtype::kFp16;
  return precision.starts_with("bf16-") ? Dtype::kBf16 : Dtype::kFp32;
}

DeepSpeedRun deepspeed_run(const DeepSpeed& options, const std::set<std::string>& given) {
  const auto file = deepspeed_file(options);
  if (file.empty()) {
    DeepSpeedRun run{.config = deepspeed_config(options, Dtype::kFp32)};
    name_arguments(run.config);
    run.warnings = deepspeed::advice(run.config);
    for (auto& sentence : without_effect(run.config)) run.warnings.push_back(std::move(sentence));
    return run;
  }
  auto read = deepspeed::read_config_for_run(
      file, [&](DeepSpeedConfig& config) { fill_from_arguments(config, options); });
  check_arguments(options, read.config, given);
  for (auto& sentence : without_effect(read.config)) read.warnings.push_back(std::move(sentence));
  return {.config = std::move(read.config), .warnings = std::move(read.warnings), .is_from_file = true};
}

// DeepSpeed's bf16 casts the model; its fp16 needs a scaler, which 16-true has not.
PrecisionOptions precision_of(const DeepSpeedConfig& config, const PrecisionOptions& given,
                              bool is_asked_for) {
  refuse_scaler_options(given);
  auto completed = config;
  complete(completed, {.precision = chosen_dtype(given, is_asked_for)});
  const bool is_half = completed.fp16.enabled.value;
  if (is_half && !std::holds_alternative<Fp16Mixed>(given)) return Fp16Mixed{};
  if (completed.bf16.enabled.value && !chosen_dtype(given, is_asked_for)) return Bf16True{};
  return given;
}

DeepSpeedConfig with_precision(DeepSpeedConfig config, const DeepSpeed& options,
                               const PrecisionOptions& precision) {
  const auto dtype = chosen_dtype(precision, /*is_asked_for=*/false).value_or(Dtype::kFp32);
  if (deepspeed_file(options).empty()) config.fp16 = deepspeed_config(options, dtype).fp16;
  config.fp16.enabled = dtype == Dtype::kFp16;
  config.bf16.enabled = dtype == Dtype::kBf16;
  return config;
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
