#include "strategy/deepspeed_conflicts.h"

#include <map>

#include <lockstep/base/error.h>

#include "base/option_keys.h"
#include "deepspeed/value_finder.h"

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

}  // namespace lockstep::detail
