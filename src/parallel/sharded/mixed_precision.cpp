#include <lockstep/parallel/sharded/mixed_precision.h>

#include <array>
#include <utility>

#include "base/format.h"

namespace lockstep {
namespace {

using Dtype = std::optional<at::ScalarType>;

constexpr std::pair<std::string_view, at::ScalarType> kDtypeNames[] = {
    {"float32", at::kFloat}, {"fp32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"bf16", at::kBFloat16},
    {"float16", at::kHalf},  {"fp16", at::kHalf},  {"half", at::kHalf},         {"float64", at::kDouble}};

Dtype dtype_named(std::string_view name) {
  for (const auto& [known, dtype] : kDtypeNames) {
    if (detail::same_name(known, name)) return dtype;
  }
  return std::nullopt;
}

std::string name_of_dtype(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypeNames) {
    if (known == dtype) return std::string(name);
  }
  return "unknown";
}

// Sets the field that `entry`, "KEY: VALUE", names; false where it names none.
bool set_field(MixedPrecision& fields, std::string_view entry) {
  const auto colon = entry.find(':');
  if (colon == std::string_view::npos) return false;
  const auto key = detail::trimmed(entry.substr(0, colon));
  const auto value = detail::trimmed(entry.substr(colon + 1));
  const std::array<std::pair<std::string_view, bool*>, 2> switches{
      {{"keep_low_precision_grads", &fields.keep_low_precision_grads},
       {"cast_forward_inputs", &fields.cast_forward_inputs}}};
  for (const auto& [name, is_on] : switches) {
    if (name == key) *is_on = value == "true";
    if (name == key) return value == "true" || value == "false";
  }
  const std::array<std::pair<std::string_view, Dtype*>, 3> dtypes{{{"param_dtype", &fields.param_dtype},
                                                                   {"reduce_dtype", &fields.reduce_dtype},
                                                                   {"buffer_dtype", &fields.buffer_dtype}}};
  for (const auto& [name, dtype] : dtypes) {
    if (name == key) *dtype = dtype_named(value);
    if (name == key) return dtype->has_value();
  }
  return false;
}

std::optional<MixedPrecision> parse_map(std::string_view text) {
  MixedPrecision fields;
  text = text.substr(1, text.size() - 2);
  while (!detail::trimmed(text).empty()) {
    const auto comma = std::min(text.find(','), text.size());
    if (!set_field(fields, detail::trimmed(text.substr(0, comma)))) return std::nullopt;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return fields;
}

}  // namespace

Expected<MixedPrecisionChoice> OptionType<MixedPrecisionChoice>::parse(std::string_view text) {
  if (detail::same_name(text, "none")) return MixedPrecisionChoice();
  if (const auto dtype = dtype_named(text)) return MixedPrecisionChoice(*dtype);
  if (text.size() >= 2 && text.front() == '{' && text.back() == '}') {
    if (const auto fields = parse_map(text)) return MixedPrecisionChoice(*fields);
  }
  return Unexpected{accepted()};
}

std::string OptionType<MixedPrecisionChoice>::print(const MixedPrecisionChoice& value) {
  if (value.is_none()) return "none";
  const auto& fields = value.value();
  std::string text;
  const auto add = [&](const char* key, const std::string& field) {
    text += (text.empty() ? "" : ", ") + std::string(key) + ": " + field;
  };
  if (fields.param_dtype) add("param_dtype", name_of_dtype(*fields.param_dtype));
  if (fields.reduce_dtype) add("reduce_dtype", name_of_dtype(*fields.reduce_dtype));
  if (fields.buffer_dtype) add("buffer_dtype", name_of_dtype(*fields.buffer_dtype));
  if (fields.keep_low_precision_grads) add("keep_low_precision_grads", "true");
  if (!fields.cast_forward_inputs) add("cast_forward_inputs", "false");
  return "{" + text + "}";
}

std::string OptionType<MixedPrecisionChoice>::accepted() {
  return "none, a type (float32, bfloat16, float16), or a map of param_dtype, reduce_dtype, buffer_dtype, "
         "keep_low_precision_grads and cast_forward_inputs";
}

}  // namespace lockstep
