#include "formats/tagged_folder.h"

#include <fstream>

#include <lockstep/base/error.h>

#include "formats/in_quotes.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxTagBytes = 255;  // of a name in a folder
constexpr auto kWhitespace = " \t\r\n";

// As Python's strip().
std::string stripped(const std::string& text) {
  const auto begin = text.find_first_not_of(kWhitespace);
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhitespace) - begin + 1);
}

fs::path existing(const fs::path& folder, const std::string& tag, const std::string& who) {
  std::error_code ignored;
  if (fs::is_directory(folder / tag, ignored)) return folder / tag;
  throw CheckpointError("checkpoint",
                        {.what = who + " names the checkpoint " + in_quotes(tag) + ", which is not there",
                         .expected = "the folder " + (folder / tag).string(),
                         .hint = "give the folder of a complete checkpoint beside it"});
}

}  // namespace

bool is_tag(std::string_view tag) {
  return !tag.empty() && tag.size() <= kMaxTagBytes && tag != "." && tag != ".." &&
         tag.find_first_of(std::string_view("/\0", 2)) == tag.npos;
}

std::optional<std::string> latest_tag(const fs::path& folder) {
  const auto path = folder / kLatestName;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string text(4 * kMaxTagBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    throw IoError("checkpoint", {.what = "'" + path.string() + "' cannot be read"});
  text = stripped(text.substr(0, static_cast<std::size_t>(file.gcount())));
  if (is_tag(text)) return text;
  throw CheckpointError("checkpoint", {.what = "'" + path.string() + "' names no checkpoint",
                                       .expected = "the name of a folder beside it, such as global_step100",
                                       .got = in_quotes(text)});
}

fs::path tagged_folder(const fs::path& folder, const std::string& tag) {
  if (!tag.empty() && !is_tag(tag))
    throw ConfigError("checkpoint",
                      {.what = "tag", .expected = "the name of a folder", .got = in_quotes(tag)});
  if (!tag.empty()) return existing(folder, tag, "tag");
  const auto latest = latest_tag(folder);
  return latest ? existing(folder, *latest, "'" + (folder / kLatestName).string() + "'") : folder;
}

}  // namespace lockstep::detail
