// What a Trainer adds to a configuration, and where it contradicts it.
#include <lockstep/base/error.h>
#include <lockstep/deepspeed/complete.h>

#include "base/format.h"

namespace lockstep {
namespace {

using deepspeed::AutoOr;
using deepspeed::Dtype;
using Size = std::optional<std::int64_t>;

/// A setting that a file may give, and the Trainer's option for the same.
struct Pair {
  const DeepSpeedConfig& config;
  std::string key;
  std::string option;
};

void require_same(const Pair& pair, bool are_same, const std::string& in_file,
                  const std::string& in_trainer) {
  if (are_same) return;
  throw ConfigError("deepspeed",
                    {.what = pair.config.named(pair.key) + " and the Trainer's " + pair.option + " disagree",
                     .expected = "the same number, or one of them not given",
                     .got = in_file + " and " + in_trainer,
                     .where = {},
                     .hint = "\"auto\" in the file takes the Trainer's"});
}

bool is_open(const AutoOr<Size>& size) { return size.is_auto || !size.value; }

void complete_size(const Pair& pair, AutoOr<Size>& size, Size from_trainer) {
  if (is_open(size)) {
    if (from_trainer) size = Size(from_trainer);
  } else if (from_trainer) {
    require_same(pair, *size.value == *from_trainer, std::to_string(*size.value),
                 std::to_string(*from_trainer));
  }
}

void complete_batches(DeepSpeedConfig& c, const TrainerSettings& s) {
  auto& micro = c.train_micro_batch_size_per_gpu;
  complete_size({c, "gradient_accumulation_steps", "accumulate_grad_batches"}, c.gradient_accumulation_steps,
                s.accumulate_grad_batches);
  complete_size({c, "train_micro_batch_size_per_gpu", "loader's batch_size"}, micro, s.micro_batch_size);
  if (is_open(micro) && is_open(c.train_batch_size)) micro = Size(1);
}

void complete_clipping(DeepSpeedConfig& c, const TrainerSettings& s) {
  const bool is_given = c.is_given("gradient_clipping") && !c.gradient_clipping.is_auto;
  if (!is_given) {
    c.gradient_clipping = s.gradient_clip_val.value_or(0.0);
  } else if (s.gradient_clip_val) {
    const auto in_file = c.gradient_clipping.value;
    require_same({c, "gradient_clipping", "gradient_clip_val"}, in_file == *s.gradient_clip_val,
                 number_text(in_file), number_text(*s.gradient_clip_val));
  }
}

/// Fills one of fp16.enabled and bf16.enabled, which stands for `dtype`.
void complete_enabled(const Pair& pair, AutoOr<bool>& enabled, Dtype dtype, std::optional<Dtype> precision) {
  const bool wanted = precision == dtype;
  const bool is_given = pair.config.is_given(pair.key) && !enabled.is_auto;
  if (!is_given && (enabled.is_auto || precision)) {
    enabled = wanted;
  } else if (is_given && precision) {
    require_same(pair, enabled.value == wanted, enabled.value ? "true" : "false", wanted ? "true" : "false");
  }
}

}  // namespace

void complete(DeepSpeedConfig& config, const TrainerSettings& settings) {
  complete_batches(config, settings);
  complete_clipping(config, settings);
  complete_enabled({config, "fp16.enabled", "precision"}, config.fp16.enabled, Dtype::kFp16,
                   settings.precision);
  complete_enabled({config, "bf16.enabled", "precision"}, config.bf16.enabled, Dtype::kBf16,
                   settings.precision);
}

}  // namespace lockstep
