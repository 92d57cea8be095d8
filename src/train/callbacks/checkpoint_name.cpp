#include "train/callbacks/checkpoint_name.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

[[noreturn]] void refuse(std::string_view text, std::string expected, std::string_view got) {
  throw ConfigError("train", {.what = "ModelCheckpoint: filename \"" + std::string(text) + "\"",
                              .expected = std::move(expected),
                              .got = std::string(got)});
}

// [0][width][.precision][dfeg], of which printf makes the same text as Python.
bool is_spec(std::string_view spec) {
  const auto digits = [&] {
    std::size_t count = 0;
    for (; !spec.empty() && spec.front() >= '0' && spec.front() <= '9'; ++count) spec.remove_prefix(1);
    return count <= 3;
  };
  if (!digits()) return false;
  if (spec.starts_with('.')) {
    spec.remove_prefix(1);
    if (!digits()) return false;
  }
  return spec.empty() ||
         (spec.size() == 1 && std::string_view("dfeg").find(spec[0]) != std::string_view::npos);
}

std::string with_spec(std::string_view spec, const NamedValue& value) {
  char text[1024];
  const char kind = spec.back();
  const std::string head = "%" + std::string(spec.substr(0, spec.size() - (std::isalpha(kind) ? 1 : 0)));
  if (kind == 'd') {
    std::snprintf(text, sizeof text, (head + "lld").c_str(), std::llround(value.value));
  } else {
    std::snprintf(text, sizeof text, (head + (std::isalpha(kind) ? kind : 'g')).c_str(), value.value);
  }
  return text;
}

std::string without_spec(const NamedValue& value) {
  if (value.is_integer) return std::to_string(std::llround(value.value));
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value.value).ptr;
  return {text, end};
}

}  // namespace

std::string checkpoint_name(std::string_view text, bool inserts_names,
                            const std::function<NamedValue(std::string_view)>& value_of) {
  std::string name;
  for (std::string_view rest = text; !rest.empty();) {
    const auto open = rest.find('{');
    name += rest.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = rest.find('}', open);
    if (close == std::string_view::npos) refuse(text, "a } for every {", rest.substr(open));
    const auto field = rest.substr(open + 1, close - open - 1);
    rest.remove_prefix(close + 1);
    const auto key = field.substr(0, field.find(':'));
    const auto spec = key.size() < field.size() ? field.substr(key.size() + 1) : std::string_view();
    if (!is_spec(spec)) refuse(text, "{name}, {name:.2f}, {name:03d} or {name:.1e}", field);
    if (inserts_names) name += std::string(key) + "=";
    auto value = value_of(key);
    if (std::isnan(value.value)) value.value = NAN;  // without its sign
    name += spec.empty() ? without_spec(value) : with_spec(spec, value);
  }
  return name;
}

}  // namespace lockstep::detail
