// What DeepSpeed's configuration says about a run, against the arguments, and what of it has no effect.
#include "strategy/deepspeed_run.h"

#include <algorithm>
#include <map>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/deepspeed/complete.h>
#include <lockstep/precision/precision.h>

#include "base/option_keys.h"
#include "deepspeed/read_config.h"

namespace lockstep::detail {
namespace {

enum class Says {
  kAlone,
  kWithSection,    // beside offload_optimizer or offload_parameters
  kWhereItDiffers  // from its default, which says nothing even where it is given
};

struct ArgumentKey {
  const char* argument;
  const char* key;
  Says says = Says::kAlone;
  const char* or_key = nullptr;  // will do as well
};

constexpr ArgumentKey kArgumentKeys[] = {
    {"stage", "zero_optimization.stage"},
    {"zero_optimization", "zero_optimization.stage", Says::kWhereItDiffers},
    {"offload_optimizer", "zero_optimization.offload_optimizer.device"},
    {"offload_optimizer_device", "zero_optimization.offload_optimizer.device", Says::kWithSection},
    {"offload_parameters", "zero_optimization.offload_param.device"},
    {"offload_params_device", "zero_optimization.offload_param.device", Says::kWithSection},
    {"nvme_path", "zero_optimization.offload_optimizer.nvme_path", Says::kWithSection,
     "zero_optimization.offload_param.nvme_path"},
    {"optimizer_buffer_count", "zero_optimization.offload_optimizer.buffer_count", Says::kWithSection},
    {"pin_memory", "zero_optimization.offload_optimizer.pin_memory", Says::kWithSection},
    {"params_buffer_count", "zero_optimization.offload_param.buffer_count", Says::kWithSection},
    {"params_buffer_size", "zero_optimization.offload_param.buffer_size", Says::kWithSection},
    {"max_in_cpu", "zero_optimization.offload_param.max_in_cpu", Says::kWithSection},
    {"block_size", "aio.block_size"},
    {"queue_depth", "aio.queue_depth"},
    {"single_submit", "aio.single_submit"},
    {"overlap_events", "aio.overlap_events"},
    {"thread_count", "aio.intra_op_parallelism"},
    {"sub_group_size", "zero_optimization.sub_group_size"},
    {"contiguous_gradients", "zero_optimization.contiguous_gradients"},
    {"overlap_comm", "zero_optimization.overlap_comm"},
    {"allgather_partitions", "zero_optimization.allgather_partitions"},
    {"reduce_scatter", "zero_optimization.reduce_scatter"},
    {"allgather_bucket_size", "zero_optimization.allgather_bucket_size"},
    {"reduce_bucket_size", "zero_optimization.reduce_bucket_size"},
    {"zero_allow_untested_optimizer", "zero_allow_untested_optimizer"},
    {"partition_activations", "activation_checkpointing.partition_activations"},
    {"cpu_checkpointing", "activation_checkpointing.cpu_checkpointing"},
    {"contiguous_memory_optimization", "activation_checkpointing.contiguous_memory_optimization"},
    {"synchronize_checkpoint_boundary", "activation_checkpointing.synchronize_checkpoint_boundary"},
    {"loss_scale", "fp16.loss_scale"},
    {"initial_scale_power", "fp16.initial_scale_power"},
    {"loss_scale_window", "fp16.loss_scale_window"},
    {"hysteresis", "fp16.hysteresis"},
    {"min_loss_scale", "fp16.min_loss_scale"},
};

class ArgumentTexts final : public KeyedVisitor {
 public:
  std::map<std::string, std::string> by_name;

  void visit_field(OptionField& field) override { by_name[field.name()] = field.print(); }
  void visit_choice(OptionChoice&) override {}
};

std::map<std::string, std::string> argument_texts_of(DeepSpeed arguments) {
  ArgumentTexts texts;
  describe(texts, arguments);
  return std::move(texts.by_name);
}

std::string shown_value(const std::string& value) { return value.empty() ? "nothing" : value; }

}  // namespace

void fill_from_arguments(DeepSpeedConfig& file, const DeepSpeed& arguments) {
  const auto says = deepspeed_config(arguments, deepspeed::Dtype::kFp16);
  std::set<std::string> filled;  // a device is none unless its section is asked for, which the first row says
  for (const auto& row : kArgumentKeys) {
    if (!file.autos.contains(row.key) || !filled.insert(row.key).second) continue;
    deepspeed::set_value_at(file, row.key, deepspeed::value_at(says, row.key));
  }
}

void check_arguments(const DeepSpeed& arguments, const DeepSpeedConfig& file,
                     const std::set<std::string>& given) {
  const auto texts = argument_texts_of(arguments);
  static const auto defaults = argument_texts_of(DeepSpeed{});
  auto offloading = arguments;
  offloading.offload_optimizer = offloading.offload_parameters = true;
  const auto says = deepspeed_config(arguments, deepspeed::Dtype::kFp16);
  const auto says_of_sections = deepspeed_config(offloading, deepspeed::Dtype::kFp16);
  for (const auto& [argument, key, when, or_key] : kArgumentKeys) {
    const auto& text = texts.at(argument);
    const bool counts_as_given = when != Says::kWhereItDiffers && given.contains(argument);
    if (text == defaults.at(argument) && !counts_as_given) continue;
    const auto wanted = deepspeed::value_at(when == Says::kWithSection ? says_of_sections : says, key);
    const auto found = deepspeed::value_at(file, key);
    if (wanted == found || (or_key != nullptr && wanted == deepspeed::value_at(file, or_key))) continue;
    throw ConfigError(
        "deepspeed",
        {.what = "strategy." + std::string(argument) + " and the file's " + file.named(key) + " disagree",
         .expected = "the same value, or the file's alone",
         .got =
             std::string(argument) + " = " + shown_value(text) + " and " + key + " = " + shown_value(found),
         .hint = "with a file the other arguments of strategy deepspeed say nothing"});
  }
}

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

namespace {

using deepspeed::Dtype;

// What each precision is for DeepSpeed; nothing for the default, which says nothing about what the user
// wants.
std::optional<Dtype> wanted_by(const Fp32&) { return std::nullopt; }
std::optional<Dtype> wanted_by(const Fp64&) { return Dtype::kFp32; }
std::optional<Dtype> wanted_by(const Fp16True&) { return Dtype::kFp16; }
std::optional<Dtype> wanted_by(const Fp16Mixed&) { return Dtype::kFp16; }
std::optional<Dtype> wanted_by(const Bf16True&) { return Dtype::kBf16; }
std::optional<Dtype> wanted_by(const Bf16Mixed&) { return Dtype::kBf16; }
std::optional<Dtype> wanted_by(const std::shared_ptr<Precision>& own) {
  return own ? std::optional(dtype_of(*own)) : std::nullopt;
}

std::optional<Dtype> chosen_dtype(const PrecisionOptions& given, bool is_asked_for) {
  if (is_asked_for && std::holds_alternative<Fp32>(given)) return Dtype::kFp32;
  return std::visit([](const auto& precision) { return wanted_by(precision); }, given);
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

Dtype dtype_of(const Precision& precision) {
  if (precision.compute_dtype() == at::kHalf) return Dtype::kFp16;
  return precision.compute_dtype() == at::kBFloat16 ? Dtype::kBf16 : Dtype::kFp32;
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
  if (std::holds_alternative<std::shared_ptr<Precision>>(given)) return given;
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
