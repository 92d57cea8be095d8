#include <lockstep/precision/precision_options.h>

#include <array>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "precision/bf16_mixed.h"
#include "precision/fp32.h"

namespace lockstep {
namespace {

using Row = Choice<PrecisionOptions>;

constexpr std::string_view kNotBuilt = "known but not built yet; docs/status.md says what is";

Row not_built(std::string_view name, std::string_view reason = kNotBuilt) {
  return {name, Fp32{}, "not built yet", reason};
}

std::shared_ptr<Precision> make(const Fp32&) { return std::make_shared<Fp32Precision>(); }

std::shared_ptr<Precision> make(const Bf16Mixed& bf16) {
  if (!bf16.given_as.empty()) {
    log_info("precision \"" + std::string(bf16.given_as) + "\" is an old name: write \"bf16-mixed\"");
  }
  return std::make_shared<Bf16MixedPrecision>();
}

std::shared_ptr<Precision> make(const std::shared_ptr<Precision>& own) {
  if (own) return own;
  throw ConfigError("precision", {.what = "precision", .expected = "a Precision", .got = "a null pointer"});
}

}  // namespace

std::span<const Row> precision_choices() {
  static const std::array rows{
      Row{"32-true", Fp32{}, "float32 throughout"},
      Row{"32", Fp32{}, "32-true"},
      Row{"bf16-mixed", Bf16Mixed{}, "autocast to bfloat16 in the forward pass, all that is kept in float32"},
      Row{"bf16", Bf16Mixed{.given_as = "bf16"}, "bf16-mixed, by its old name"},
      not_built("64-true"),
      not_built("64", "it means 64-true, which is known but not built yet; docs/status.md says what is"),
      not_built("16-mixed"),
      not_built("16", "it means 16-mixed, which is known but not built yet; docs/status.md says what is"),
      not_built("16-true"),
      not_built("bf16-true"),
      not_built("transformer-engine"),
      not_built("transformer-engine-float16"),
  };
  return rows;
}

std::shared_ptr<Precision> make_precision(const PrecisionOptions& options) {
  return std::visit([](const auto& held) { return make(held); }, options);
}

}  // namespace lockstep
