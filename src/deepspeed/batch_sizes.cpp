#include <lockstep/deepspeed/batch_sizes.h>

#include <optional>
#include <string>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

using Size = std::optional<std::int64_t>;

constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kSteps = "gradient_accumulation_steps";

std::string number(std::int64_t value) { return std::to_string(value); }

[[noreturn]] void refuse(const std::string& what, const std::string& expected, const std::string& got,
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
  if (!sizes) refuse("no batch size", std::string(kTrain) + " or " + kMicro, got);
  const auto require_positive = [&](const char* key, std::int64_t value) {
    if (value <= 0) refuse(std::string(key) + " comes out as " + number(value), "> 0", got);
  };
  require_positive(kTrain, sizes->train_batch_size);
  require_positive(kMicro, sizes->train_micro_batch_size_per_gpu);
  require_positive(kSteps, sizes->gradient_accumulation_steps);
  if (!product_holds(*sizes, world_size)) {
    refuse("batch sizes do not fit together",
           std::string(kTrain) + " = " + kMicro + " x " + kSteps + " x ranks",
           number(sizes->train_batch_size) + " != " + number(sizes->train_micro_batch_size_per_gpu) + " x " +
               number(sizes->gradient_accumulation_steps) + " x " + std::to_string(world_size) + " (" + got +
               ")");
  }
  return *sizes;
}

}  // namespace lockstep
