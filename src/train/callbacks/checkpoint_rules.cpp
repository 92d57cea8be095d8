#include "train/callbacks/checkpoint_rules.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include <lockstep/base/error.h>
#include <lockstep/train/callbacks/model_checkpoint.h>
#include <lockstep/train/train_context.h>

#include "base/number_locale.h"
#include "formats/checkpoint_folders.h"

namespace lockstep::detail {
namespace {

[[noreturn]] void refuse(std::string_view text, std::string expected, std::string_view got) {
  throw ConfigError("train", {.what = "ModelCheckpoint: filename \"" + std::string(text) + "\"",
                              .expected = std::move(expected),
                              .got = std::string(got)});
}

// [0][width][.precision][dfeg], of which printf makes the same text as Python where there is a letter.
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

// Prints `digits` digits after the first one; where that is negative, as few as identify the number.
std::string scientific(double value, int digits) {
  char text[1100];
  const auto end =
      digits < 0 ? std::to_chars(text, text + sizeof text, value, std::chars_format::scientific)
                 : std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, digits);
  return {text, end.ptr};
}

std::string fixed(double value, int digits) {
  char text[1100];
  const auto end = digits < 0
                       ? std::to_chars(text, text + sizeof text, value, std::chars_format::fixed)
                       : std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits);
  return {text, end.ptr};
}

// Removes zeros at the end of the fraction.
std::string trimmed(const std::string& digits) {
  if (digits.find('.') == std::string::npos) return digits;
  const auto last = digits.find_last_not_of('0');
  return digits.substr(0, digits[last] == '.' ? last : last + 1);
}

// Prints a number as Python's str() and format() without a letter do: always with a point, and with an
// exponent for small and large numbers. `precision` 0: as many digits as identify the number.
std::string as_python(double value, int precision) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const auto text = scientific(value, precision - 1);
  const auto mark = text.find('e');
  const int exponent = std::stoi(text.substr(mark + 1));
  const bool is_plain = exponent >= -4 && exponent < (precision > 0 ? precision - 1 : 16);
  if (!is_plain) return trimmed(text.substr(0, mark)) + text.substr(mark);
  const auto plain = precision > 0 ? trimmed(fixed(value, precision - 1 - exponent)) : fixed(value, -1);
  return plain.find('.') == std::string::npos ? plain + ".0" : plain;
}

// [0][WIDTH][.PRECISION] before the letter, if there is one.
struct Spec {
  bool fills_with_zeros = false;
  std::size_t width = 0;
  int precision = 0;
};

Spec spec_without_letter(std::string_view text) {
  Spec spec{.fills_with_zeros = text.starts_with('0')};
  const char* const end = text.data() + text.size();
  const auto* const point = std::from_chars(text.data(), end, spec.width).ptr;
  if (point != end) {
    std::from_chars(point + 1, end, spec.precision);
    spec.precision = std::max(spec.precision, 1);
  }
  return spec;
}

std::string without_letter(std::string_view text, double value) {
  const auto spec = spec_without_letter(text);
  auto number = as_python(value, spec.precision);
  if (number.size() >= spec.width) return number;
  const auto fill = spec.width - number.size();
  if (!spec.fills_with_zeros) return std::string(fill, ' ') + number;
  return number.insert(number.starts_with('-') ? 1 : 0, fill, '0');
}

std::string with_spec(std::string_view spec, const NamedValue& value) {
  const NumbersWithPoint scope;
  char text[1024];
  const bool has_letter = !spec.empty() && std::isalpha(spec.back()) != 0;
  const std::string head = "%" + std::string(spec.substr(0, spec.size() - (has_letter ? 1 : 0)));
  if (has_letter ? spec.back() == 'd' : value.is_integer) {
    std::snprintf(text, sizeof text, (head + "lld").c_str(), std::llround(value.value));
  } else if (has_letter) {
    std::snprintf(text, sizeof text, (head + spec.back()).c_str(), value.value);
  } else {
    return without_letter(spec, value.value);
  }
  return text;
}

// A metric's name as a part of a path: a/b lies in folder a; no name leads out of the checkpoint's folder.
std::string inside(std::string_view metric) {
  std::string path;
  for (bool is_first = true; !metric.empty() || is_first; is_first = false) {
    const auto part = metric.substr(0, metric.find('/'));
    if (!is_first) path += '/';
    path += part.empty() || part == "." || part == ".."
                ? std::string(std::max<std::size_t>(part.size(), 1), '_')
                : std::string(part);
    metric.remove_prefix(std::min(part.size() + 1, metric.size()));
  }
  return path;
}

void require_inside(std::string_view text, const std::filesystem::path& name) {
  const auto normal = name.lexically_normal();
  if (normal.is_relative() && *normal.begin() != "..") return;
  refuse(text, "a name inside of dirpath, which can name another folder", name.string());
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
    if (inserts_names) name += inside(key) + "=";
    auto value = value_of(key);
    if (std::isnan(value.value)) value.value = NAN;  // without its sign
    name += with_spec(spec, value);
  }
  require_inside(text, name);
  return name;
}

std::filesystem::path checkpoint_folder(const ModelCheckpointOptions& options, const TrainContext& context) {
  return without_slash(options.dirpath.empty() ? context.run_dir() / "checkpoints" : options.dirpath);
}

std::filesystem::path weights_beside(const std::filesystem::path& folder) {
  auto beside = folder;
  beside.replace_filename(folder.stem().string() + "-weights" + folder.extension().string());
  return beside;
}

}  // namespace lockstep::detail
