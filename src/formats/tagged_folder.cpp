#include "formats/tagged_folder.h"

#include <algorithm>
#include <array>
#include <fstream>

#include <lockstep/base/error.h>

#include "base/format.h"
#include "formats/checkpoint_manifest.h"
#include "formats/checkpoint_siblings.h"
#include "formats/file_text.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxTagBytes = 255;  // the limit of file names
constexpr auto kWhitespace = " \t\r\n\v\f";

// `text` without white space at both ends, as Python's strip().
std::string_view stripped(std::string_view text) {
  const auto begin = text.find_first_not_of(kWhitespace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhitespace) - begin + 1);
}

bool is_there(const fs::path& checkpoint) {
  std::error_code ignored;
  return fs::is_directory(checkpoint, ignored) || !newest_older(checkpoint).empty();
}

bool has_weights(const fs::path& folder) {
  constexpr std::array kFiles{kManifestName, "model.safetensors", "model.safetensors.index.json"};
  return std::ranges::any_of(kFiles, [&](const auto* name) {
    std::error_code ignored;
    return fs::exists(folder / name, ignored);
  });
}

fs::path existing(const fs::path& folder, const std::string& tag, const std::string& who) {
  if (is_there(folder / tag)) return folder / tag;
  throw CheckpointError("checkpoint",
                        {.what = who + " names the checkpoint " + in_quotes(tag) + ", which is not there",
                         .expected = "the folder " + (folder / tag).string(),
                         .hint = "give the folder of a complete checkpoint beside it"});
}

}  // namespace

bool is_tag(std::string_view tag) {
  return !tag.empty() && tag.size() <= kMaxTagBytes && tag == stripped(tag) && tag != "." && tag != ".." &&
         tag.find_first_of(std::string_view("/\0", 2)) == tag.npos;
}

std::optional<std::string> latest_tag(const fs::path& folder) {
  const auto path = folder / kLatestName;
  std::error_code failure;
  if (fs::symlink_status(path, failure).type() == fs::file_type::not_found) return std::nullopt;
  std::ifstream file;
  if (fs::is_regular_file(path, failure))
    file.open(path, std::ios::binary);  // a pipe would wait for its writer
  std::string text(4 * kMaxTagBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) throw IoError("checkpoint", unreadable_file(path));
  text = stripped(std::string_view(text).substr(0, static_cast<std::size_t>(file.gcount())));
  if (is_tag(text)) return text;
  throw CheckpointError("checkpoint", {.what = "'" + path.string() + "' names no checkpoint",
                                       .expected = "the name of a folder beside it, such as global_step100",
                                       .got = in_quotes(text)});
}

fs::path tagged_folder(const fs::path& folder, const std::string& tag) {
  require_name(folder);
  if (!tag.empty() && !is_tag(tag))
    throw ConfigError("checkpoint",
                      {.what = "tag", .expected = "the name of a folder", .got = in_quotes(tag)});
  if (!tag.empty()) return existing(folder, tag, "tag");
  const auto latest = latest_tag(folder);
  const bool is_left_over = latest && !is_there(folder / *latest) && has_weights(folder);
  if (!latest || is_left_over) return folder;
  return existing(folder, *latest, "'" + (folder / kLatestName).string() + "'");
}

}  // namespace lockstep::detail
