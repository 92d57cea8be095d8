#include "text.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

namespace lm {

namespace fs = std::filesystem;
namespace ls = lockstep;

namespace {

std::set<fs::path> files_of(const fs::path& path) {
  if (!fs::is_directory(path)) return {fs::canonical(path)};
  std::set<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.insert(fs::canonical(entry.path()));
  }
  return files;
}

}  // namespace

std::string read_text(const std::vector<fs::path>& paths) {
  std::string text;
  std::set<fs::path> seen;
  for (const auto& path : paths) {
    if (!fs::exists(path)) {
      throw ls::ConfigError("data", {.what = "data.text: no such file or folder",
                                     .expected = "files or folders of text",
                                     .got = path.string(),
                                     .hint = "--data.text PATH, as often as wanted"});
    }
    for (const auto& file : files_of(path)) {
      if (!seen.insert(file).second) continue;
      std::ifstream stream(file, std::ios::binary);
      if (!stream) throw ls::IoError("data", {.what = "cannot read " + file.string()});
      text.append(std::istreambuf_iterator<char>(stream), {});
    }
  }
  return text;
}

Blocks::Blocks(std::vector<std::int32_t> tokens, std::int64_t context)
    : tokens_(std::move(tokens)), context_(context) {
  if (size() >= 2) return;
  throw ls::DataError("data", {.what = "data.text is too short",
                               .expected = std::to_string(2 * context + 1) + " tokens or more",
                               .got = std::to_string(tokens_.size()) + " tokens",
                               .hint = "give more text, or a smaller --model.context"});
}

std::int64_t Blocks::size() const {
  return std::max<std::int64_t>(0, (static_cast<std::int64_t>(tokens_.size()) - 1) / context_);
}

ls::Example Blocks::get_batch(std::span<const std::int64_t> indices) const {
  const auto samples = static_cast<std::int64_t>(indices.size());
  auto data = torch::empty({samples, context_}, torch::kLong), target = torch::empty_like(data);
  for (std::int64_t row = 0; row < samples; ++row) {
    const auto* first = tokens_.data() + indices[static_cast<std::size_t>(row)] * context_;
    std::copy_n(first, context_, data[row].data_ptr<std::int64_t>());
    std::copy_n(first + 1, context_, target[row].data_ptr<std::int64_t>());
  }
  return {data, target};
}

}  // namespace lm
