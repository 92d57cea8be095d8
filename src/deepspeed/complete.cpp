// Fills a configuration with the settings of a Trainer, and refuses contradictions between the two.
#include <lockstep/deepspeed/complete.h>

#include <optional>
#include <string>

#include <lockstep/base/error.h>

#include "base/format.h"

namespace lockstep {
namespace {

using Size = std::optional<std::int64_t>;

constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kSteps = "gradient_accumulation_steps";

std::string number(std::int64_t value) { return std::to_string(value); }

[[noreturn]] void refuse_sizes(const std::string& what, const std::string& expected, const std::string& got,
                               const std::string& hint = {}) {
  throw ConfigError("deepspeed", {.what = what, .expected = expected, .got = got, .where = {}, .hint = hint});
}

std::string shown(const DeepSpeedConfig& config, const char* key,
                  const deepspeed::AutoOr<std::optional<std::int64_t>>& size) {
  return config.named(key) + " = " + (size.is_auto ? "auto" : size.value ? number(*size.value) : "none");
}

std::string all_shown(const DeepSpeedConfig& config, int world_size) {
  return shown(config, kTrain, config.train_batch_size) + ", " +
         shown(config, kMicro, config.train_micro_batch_size_per_gpu) + ", " +
         shown(config, kSteps, config.gradient_accumulation_steps) + ", " + std::to_string(world_size) +
         " ranks";
}

Size given(const deepspeed::AutoOr<Size>& size) { return size.is_auto ? std::nullopt : size.value; }

/// The three sizes, unchecked; nothing when there is no batch size. What cannot be computed is 0.
std::optional<DeepSpeedBatchSizes> derive(Size train, Size micro, Size steps, std::int64_t ranks) {
  const auto divided = [](std::int64_t a, std::int64_t b) { return a <= 0 || b <= 0 ? 0 : a / b; };
  if (train && micro && steps) return DeepSpeedBatchSizes{*train, *micro, *steps};
  if (train && micro) return DeepSpeedBatchSizes{*train, *micro, divided(divided(*train, *micro), ranks)};
  if (train)
    return DeepSpeedBatchSizes{*train, divided(divided(*train, ranks), steps.value_or(1)), steps.value_or(1)};
  if (!micro) return std::nullopt;
  std::int64_t product = 0;
  const bool is_too_large = __builtin_mul_overflow(*micro, steps.value_or(1), &product) ||
                            __builtin_mul_overflow(product, ranks, &product);
  return DeepSpeedBatchSizes{is_too_large ? 0 : product, *micro, steps.value_or(1)};
}

bool product_holds(const DeepSpeedBatchSizes& sizes, std::int64_t ranks) {
  std::int64_t product = 0;
  const bool is_too_large = __builtin_mul_overflow(sizes.train_micro_batch_size_per_gpu,
                                                   sizes.gradient_accumulation_steps, &product) ||
                            __builtin_mul_overflow(product, ranks, &product);
  return !is_too_large && product == sizes.train_batch_size;
}

}  // namespace

DeepSpeedBatchSizes resolve_batch_sizes(const DeepSpeedConfig& config, int world_size) {
  const auto sizes = derive(given(config.train_batch_size), given(config.train_micro_batch_size_per_gpu),
                            given(config.gradient_accumulation_steps), world_size);
  const auto got = all_shown(config, world_size);
  if (!sizes) refuse_sizes("no batch size", std::string(kTrain) + " or " + kMicro, got);
  const auto require_positive = [&](const char* key, std::int64_t value) {
    if (value <= 0) refuse_sizes(std::string(key) + " comes out as " + number(value), "> 0", got);
  };
  require_positive(kTrain, sizes->train_batch_size);
  require_positive(kMicro, sizes->train_micro_batch_size_per_gpu);
  require_positive(kSteps, sizes->gradient_accumulation_steps);
  if (!product_holds(*sizes, world_size)) {
    refuse_sizes("batch sizes do not fit together",
                 std::string(kTrain) + " = " + kMicro + " x " + kSteps + " x ranks",
                 number(sizes->train_batch_size) + " != " + number(sizes->train_micro_batch_size_per_gpu) +
                     " x " + number(sizes->gradient_accumulation_steps) + " x " + std::to_string(world_size) +
                     " (" + got + ")");
  }
  return *sizes;
}

namespace {

using deepspeed::AutoOr;
using deepspeed::Dtype;

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

std::string_view name_of(Dtype dtype) {
  if (dtype == Dtype::kFp16) return "16-mixed or 16-true";
  return dtype == Dtype::kBf16 ? "bf16-mixed or bf16-true" : "32-true";
}

void require_same_dtype(const Pair& pair, bool in_file, bool wanted, Dtype precision) {
  if (in_file == wanted) return;
  throw ConfigError("deepspeed",
                    {.what = pair.config.named(pair.key) + " and the Trainer's precision disagree",
                     .expected = "the same kind of numbers in both, or one of them not given",
                     .got = pair.key + (in_file ? " true" : " false") +
                            " in the file, and a Trainer's precision of " + std::string(name_of(precision)),
                     .where = {},
                     .hint = "\"auto\" in the file takes the Trainer's"});
}

/// Fills one of fp16.enabled and bf16.enabled, which stands for `dtype`.
void complete_enabled(const Pair& pair, AutoOr<bool>& enabled, Dtype dtype, std::optional<Dtype> precision) {
  const bool wanted = precision == dtype;
  const bool is_given = pair.config.is_given(pair.key) && !enabled.is_auto;
  if (!is_given && (enabled.is_auto || precision)) {
    enabled = wanted;
  } else if (is_given && precision) {
    require_same_dtype(pair, enabled.value, wanted, *precision);
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
