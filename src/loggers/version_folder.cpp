#include "loggers/version_folder.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& folder, const std::error_code& failure) {
  throw IoError("loggers",
                {.what = "cannot make the folder '" + folder.string() + "'", .got = failure.message()});
}

// -1 for other names. As in Lightning, `version_3_old` has the number 3.
std::int64_t version_in(std::string_view name) {
  constexpr std::string_view kPrefix = "version_";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  name = name.substr(0, name.find('_'));
  std::int64_t version = -1;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), version);
  return status == std::errc{} && end == name.data() + name.size() ? version : -1;
}

std::int64_t largest_version(const fs::path& parent) try {
  std::int64_t largest = -1;
  for (const auto& entry : fs::directory_iterator(parent)) {
    if (entry.is_directory()) largest = std::max(largest, version_in(entry.path().filename().string()));
  }
  return largest;
} catch (const fs::filesystem_error& error) {
  fail(parent, error.code());
}

}  // namespace

void make_folder(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) fail(folder, failure);
}

std::int64_t claim_version(const fs::path& parent) {
  make_folder(parent);
  for (std::int64_t version = largest_version(parent) + 1;; ++version) {
    const auto folder = parent / ("version_" + std::to_string(version));
    std::error_code failure;
    if (fs::create_directory(folder, failure)) return version;
    if (failure && failure != std::errc::file_exists) fail(folder, failure);
  }
}

}  // namespace lockstep::detail
