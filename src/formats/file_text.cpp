#include "formats/file_text.h"

#include <algorithm>
#include <cstddef>

#include <nlohmann/json.hpp>

namespace lockstep::detail {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 80;
  return "'" + printable(text.substr(0, kShown)) + (text.size() > kShown ? "...'" : "'");
}

namespace {

/// What may follow a first byte: how many bytes, and the range of the first of these.
struct Tail {
  std::size_t bytes;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

constexpr std::size_t kNoFirstByte = 4;

constexpr Tail tail_of(unsigned char first) {
  if (first < 0x80) return {0};
  if (first < 0xC2) return {kNoFirstByte};
  if (first < 0xE0) return {1};
  if (first == 0xE0) return {.bytes = 2, .low = 0xA0};
  if (first == 0xED) return {.bytes = 2, .high = 0x9F};
  if (first < 0xF0) return {2};
  if (first == 0xF0) return {.bytes = 3, .low = 0x90};
  if (first < 0xF4) return {3};
  if (first == 0xF4) return {.bytes = 3, .high = 0x8F};
  return {kNoFirstByte};
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  for (std::size_t i = 0; i < bytes.size();) {
    const Tail tail = tail_of(at(i));
    if (tail.bytes == kNoFirstByte || bytes.size() - i <= tail.bytes) return false;
    for (std::size_t k = 1; k <= tail.bytes; ++k) {
      const bool fits = k == 1 ? at(i + k) >= tail.low && at(i + k) <= tail.high : (at(i + k) & 0xC0) == 0x80;
      if (!fits) return false;
    }
    i += tail.bytes + 1;
  }
  return true;
}

namespace {

constexpr std::string_view kConvert = "convert it with a program that reads it";
constexpr std::string_view kToUtf8 = "convert it to UTF-8, as iconv -f UTF-16 -t UTF-8 does";

struct Known {
  std::string_view start;
  ForeignFile file;
};

constexpr std::string_view kSaveAgain =
    "load it in Python, and write it with safetensors.torch.save_file or with torch.save and its defaults";

constexpr ForeignFile kWebPage{"a page of the web (HTML)",
                               "download the file itself: its address gave a page"};

constexpr Known kKnown[] = {
    {"version https://git-lfs",
     {"a pointer of Git LFS in the place of the file", "git lfs pull fetches the file"}},
    {"<!DOCTYPE", kWebPage},
    {"<!doctype", kWebPage},
    {"<html", kWebPage},
    {"<HTML", kWebPage},
    {"\x1f\x8b", {"a file compressed with gzip", "decompress it first, with gunzip"}},
    {"BZh91AY&SY", {"a file compressed with bzip2", "decompress it first, with bunzip2"}},
    {"\xfd\x37zXZ", {"a file compressed with xz", "decompress it first, with unxz"}},
    {"\x28\xb5\x2f\xfd", {"a file compressed with Zstandard", "decompress it first, with unzstd"}},
    {"PK\x03\x04", {"a zip archive", "unpack it first, with unzip"}},
    {"\x93NUMPY", {"an array of NumPy", kSaveAgain}},
    {"\x89HDF", {"an HDF5 file", kSaveAgain}},
    {"GGUF\x03", {"a GGUF file", kSaveAgain}},
    {"\xff\xfe", {"text in UTF-16", kToUtf8}},
    {"\xfe\xff", {"text in UTF-16", kToUtf8}},
    {"PAR1", {"a Parquet file", kConvert}},
    {"ARROW1", {"a file of Apache Arrow", kConvert}},
    {"SQLite format 3", {"a database of SQLite", kConvert}},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", {"a document of Microsoft Office", kConvert}},
    {"%PDF-", {"a PDF document", kConvert}},
    {"7z\xbc\xaf\x27\x1c", {"an archive of 7-Zip", "unpack it first, with 7z x"}},
    {"Rar!\x1a\x07", {"a RAR archive", "unpack it first, with unrar x"}},
    {"L119547037146038801333356L", {"a file of torch.save with pickle_protocol 0 or 1", kSaveAgain}},
    {"\x80\x02", {"a pickle of Python, protocol 2", kSaveAgain}},
    {"\x80\x03", {"a pickle of Python, protocol 3", kSaveAgain}},
    {"\x80\x04", {"a pickle of Python, protocol 4", kSaveAgain}},
    {"\x80\x05", {"a pickle of Python, protocol 5", kSaveAgain}},
};

}  // namespace

std::optional<ForeignFile> foreign_file(std::string_view start) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto text = start.substr(std::min(start.find_first_not_of(kBlanks), start.size()));
  const auto found =
      std::ranges::find_if(kKnown, [&](const Known& known) { return text.starts_with(known.start); });
  if (found == std::end(kKnown)) return std::nullopt;
  return found->file;
}

std::string as_utf8(const std::string& bytes) {
  using Json = nlohmann::json;
  if (is_utf8(bytes)) return bytes;
  return Json::parse(Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

}  // namespace lockstep::detail
