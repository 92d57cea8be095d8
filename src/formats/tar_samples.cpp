#include <algorithm>
#include <utility>

#include <lockstep/formats/tar.h>

namespace lockstep::tar {
namespace {

/// A file's name in two: `a/b.seg.png` is `a/b` and `seg.png`.
struct SplitName {
  std::string_view key;
  std::string extension;
};

std::optional<SplitName> split(std::string_view name) {
  const auto slash = name.rfind('/');
  const auto base = slash == std::string_view::npos ? 0 : slash + 1;
  const auto dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return std::nullopt;
  std::string extension(name.substr(dot + 1));
  for (char& letter : extension) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return SplitName{name.substr(0, dot), std::move(extension)};
}

bool is_about_archive(std::string_view name) { return name.starts_with("__") && name.ends_with("__"); }

bool has(const Sample& sample, std::string_view extension) {
  return std::ranges::any_of(sample.fields, [&](const Field& field) { return field.extension == extension; });
}

}  // namespace

Expected<std::optional<Sample>> SampleReader::next() {
  if (!failure_.empty()) return Unexpected{failure_};
  std::optional<Sample> sample;
  for (;;) {
    auto entry = first_ ? Expected<std::optional<Entry>>(std::exchange(first_, {})) : entries_.next();
    if (!entry) return Unexpected{failure_ = entry.error()};
    if (!*entry) return sample;
    const auto name = is_about_archive((*entry)->name) ? std::nullopt : split((*entry)->name);
    if (!name) continue;
    if (!sample) sample = Sample{.key = std::string(name->key), .fields = {}, .offset = (*entry)->offset};
    if (sample->key != name->key) {
      first_ = std::move(*entry);
      return sample;
    }
    if (has(*sample, name->extension)) {
      failure_ = "two files '" + (*entry)->name + "', the second at byte " + std::to_string((*entry)->offset);
      return Unexpected{failure_};
    }
    sample->fields.push_back({.extension = name->extension, .bytes = (*entry)->bytes});
  }
}

}  // namespace lockstep::tar
