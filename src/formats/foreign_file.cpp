#include "formats/foreign_file.h"

#include <algorithm>

namespace lockstep::detail {
namespace {

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

}  // namespace lockstep::detail
