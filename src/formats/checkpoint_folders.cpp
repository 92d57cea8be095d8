#include "formats/checkpoint_folders.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <optional>
#include <random>
#include <span>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/formats/checksum.h>

#include "base/format.h"
#include "base/system.h"
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
  const auto type = fs::symlink_status(path, failure).type();
  if (type == fs::file_type::not_found) return std::nullopt;
  if (type == fs::file_type::none) throw IoError("checkpoint", unreadable_file(path, failure.message()));
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

namespace {

constexpr std::size_t kSiblingDigits = 8;  // of HOST and of NUMBER

std::string host_digits() {
  const auto name = host_name();
  return checksum(std::as_bytes(std::span(name))).substr(0, kSiblingDigits);
}

std::string random_digits() {
  std::array<char, kSiblingDigits + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", std::random_device()());
  return digits.data();
}

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// NAME of .NAME.HOST-NUMBER.KIND; nothing for other names.
std::optional<std::string_view> name_in(std::string_view sibling, std::string_view kind) {
  constexpr auto kMiddle = 2 * kSiblingDigits + 1;  // HOST-NUMBER
  const auto suffix = "." + std::string(kind);
  const auto rest = kMiddle + suffix.size();
  if (sibling.size() < rest + 3 || sibling.front() != '.' || !sibling.ends_with(suffix)) return std::nullopt;
  const auto middle = sibling.substr(sibling.size() - rest, kMiddle);
  const bool is_one = sibling[sibling.size() - rest - 1] == '.' && middle[kSiblingDigits] == '-' &&
                      is_hexadecimal(middle.substr(0, kSiblingDigits)) &&
                      is_hexadecimal(middle.substr(kSiblingDigits + 1));
  if (!is_one) return std::nullopt;
  return sibling.substr(1, sibling.size() - rest - 2);
}

fs::path folder_of(const fs::path& checkpoint) {
  const auto parent = without_slash(checkpoint).parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

bool is_complete(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kManifestName, ignored);
}

}  // namespace

void require_name(const fs::path& checkpoint) {
  if (!checkpoint.empty()) return;
  throw ConfigError("checkpoint", {.what = "the name of the checkpoint or weights file is empty",
                                   .expected = "a path",
                                   .hint = "a variable of the shell that it comes from may be unset"});
}

fs::path without_slash(const fs::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

fs::path new_sibling(const fs::path& checkpoint, std::string_view kind) {
  return folder_of(checkpoint) / ("." + without_slash(checkpoint).filename().string() + "." + host_digits() +
                                  "-" + random_digits() + "." + std::string(kind));
}

std::vector<fs::path> siblings(const fs::path& checkpoint, std::string_view kind) {
  std::vector<fs::path> found;
  const auto name = without_slash(checkpoint).filename().string();
  std::error_code failure;
  for (fs::directory_iterator at(folder_of(checkpoint), failure), end; !failure && at != end;
       at.increment(failure)) {
    if (name_in(at->path().filename().string(), kind) == name) found.push_back(at->path());
  }
  return found;
}

fs::path checkpoint_of(const fs::path& path, std::string_view kind) {
  const auto sibling = path.filename().string();
  const auto name = name_in(sibling, kind);
  return name ? path.parent_path() / *name : fs::path();
}

bool is_of_this_host(const fs::path& sibling) {
  const auto stem = sibling.stem().string();
  return stem.size() > 2 * kSiblingDigits &&
         stem.substr(stem.size() - 2 * kSiblingDigits - 1, kSiblingDigits) == host_digits();
}

fs::path newest_older(const fs::path& checkpoint) {
  fs::path newest;
  fs::file_time_type newest_time;
  for (const auto& folder : siblings(checkpoint, kOlder)) {
    std::error_code failure;
    const auto time = fs::last_write_time(folder / kManifestName, failure);
    if (failure || (!newest.empty() && time <= newest_time)) continue;
    newest = folder;
    newest_time = time;
  }
  return newest;
}

fs::path place_of_checkpoint(const fs::path& folder) {
  if (is_complete(folder)) return folder;
  const auto older = newest_older(folder);
  if (older.empty() || is_complete(folder)) return folder;  // its replacement may just have been completed
  log_info("checkpoint " + folder.string() + " is read from " + older.string() +
           ", where it was when its replacement was interrupted");
  return older;
}

}  // namespace lockstep::detail
