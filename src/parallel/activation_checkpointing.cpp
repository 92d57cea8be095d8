#include <lockstep/parallel/activation_checkpointing.h>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

namespace lockstep {

ActivationCheckpointing::ActivationCheckpointing(std::string_view text) {
  auto parsed = OptionType<ActivationCheckpointing>::parse(text);
  if (!parsed) {
    throw ConfigError("parallel", {.what = "a choice of modules to checkpoint",
                                   .expected = parsed.error(),
                                   .got = '"' + std::string(text) + '"'});
  }
  *this = std::move(*parsed);
}

Expected<ActivationCheckpointing> OptionType<ActivationCheckpointing>::parse(std::string_view text) {
  if (const auto is_on = OptionType<bool>::parse(text)) return ActivationCheckpointing(*is_on);
  if (detail::same_name(text, "none")) return ActivationCheckpointing();
  auto policy = OptionType<WrapPolicy>::parse(text);
  if (!policy) return Unexpected{accepted()};
  return ActivationCheckpointing(std::move(*policy));
}

std::string OptionType<ActivationCheckpointing>::print(const ActivationCheckpointing& value) {
  if (value.policy()) return value.policy()->print();
  return value.is_on() ? "true" : "false";
}

std::string OptionType<ActivationCheckpointing>::accepted() {
  return "true (every unit), false, repeated_blocks, min_num_params=N, or names of module types with commas "
         "between";
}

}  // namespace lockstep
