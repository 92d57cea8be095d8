#include <lockstep/precision/precision_options.h>

#include <array>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "precision/bf16_mixed.h"
#include "precision/fp16_mixed.h"
#include "precision/fp32.h"
#include "precision/true_precision.h"

namespace lockstep {
namespace {

using Row = Choice<PrecisionOptions>;

constexpr std::string_view kNotBuilt = "known but not built yet; docs/status.md says what is";

Row not_built(std::string_view name) { return {name, Fp32{}, "not built yet", kNotBuilt}; }

void note_old_name(std::string_view old, std::string_view name) {
  if (old.empty()) return;
  log_info("precision \"" + std::string(old) + "\" is an old name: write \"" + std::string(name) + "\"");
}

template <class... Arguments>
std::shared_ptr<Precision> make_true(Arguments... arguments) {
  return std::make_shared<TruePrecision>(arguments...);
}

std::shared_ptr<Precision> make(const Fp32&) { return std::make_shared<Fp32Precision>(); }
std::shared_ptr<Precision> make(const Fp64&) { return make_true("64-true", at::kDouble); }
std::shared_ptr<Precision> make(const Fp16True&) { return make_true("16-true", at::kHalf); }
std::shared_ptr<Precision> make(const Bf16True&) { return make_true("bf16-true", at::kBFloat16); }

std::shared_ptr<Precision> make(const Bf16Mixed& bf16) {
  note_old_name(bf16.given_as, "bf16-mixed");
  return std::make_shared<Bf16MixedPrecision>();
}

std::shared_ptr<Precision> make(const Fp16Mixed& fp16) {
  note_old_name(fp16.given_as, "16-mixed");
  return std::make_shared<Fp16MixedPrecision>(fp16.scaler);
}

std::shared_ptr<Precision> make(const std::shared_ptr<Precision>& own) {
  if (own) return own;
  throw ConfigError("precision", {.what = "precision", .expected = "a Precision", .got = "a null pointer"});
}

}  // namespace

void describe(OptionVisitor& visitor, Fp16Mixed& options) { describe(visitor, options.scaler); }

std::span<const Row> precision_choices() {
  static const std::array rows{
      Row{"32-true", Fp32{}, "float32 throughout"},
      Row{"32", Fp32{}, "32-true"},
      Row{"bf16-mixed", Bf16Mixed{}, "autocast to bfloat16 in the forward pass, all that is kept in float32"},
      Row{"bf16", Bf16Mixed{.given_as = "bf16"}, "bf16-mixed, by its old name"},
      Row{"16-mixed", Fp16Mixed{}, "autocast to float16, with a scaler of losses; else as bf16-mixed"},
      Row{"16", Fp16Mixed{.given_as = "16"}, "16-mixed, by its old name"},
      Row{"64-true", Fp64{}, "float64 throughout"},
      Row{"64", Fp64{}, "64-true"},
      Row{"16-true", Fp16True{}, "float16 throughout"},
      Row{"bf16-true", Bf16True{}, "bfloat16 throughout"},
      not_built("transformer-engine"),
      not_built("transformer-engine-float16"),
  };
  return rows;
}

std::shared_ptr<Precision> make_precision(const PrecisionOptions& options) {
  return std::visit([](const auto& held) { return make(held); }, options);
}

}  // namespace lockstep
