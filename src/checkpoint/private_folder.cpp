#include "checkpoint/private_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

std::string octal(mode_t mode) {
  char digits[8];
  std::snprintf(digits, sizeof digits, "%04o", static_cast<unsigned>(mode & 07777));
  return digits;
}

// What is wrong with it; empty: nothing.
std::string fault_of(const fs::path& folder, mode_t forbidden) {
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) return std::generic_category().message(errno);
  if (S_ISLNK(status.st_mode)) return "a symbolic link";
  if (!S_ISDIR(status.st_mode)) return "something that is no folder";
  if (status.st_uid != ::geteuid()) return "a folder of user " + std::to_string(status.st_uid);
  return (status.st_mode & forbidden) != 0 ? "a folder of mode " + octal(status.st_mode) : "";
}

}  // namespace

void make_private_folder(const fs::path& folder, mode_t forbidden) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw IoError("checkpoint", {.what = "folder " + folder.string() + " cannot be made",
                                 .got = std::generic_category().message(errno)});
  const auto fault = fault_of(folder, forbidden);
  if (fault.empty()) return;
  throw ConfigError("checkpoint",
                    {.what = "folder " + folder.string() + " cannot be used",
                     .expected = "a folder of this user, in which nobody else may " +
                                 std::string(forbidden == kNobodyElse ? "do anything" : "write"),
                     .got = fault,
                     .hint = "folder of local_checkpoint names another place"});
}

bool is_private_folder(const fs::path& folder) { return fault_of(folder, kNobodyElse).empty(); }

}  // namespace lockstep::detail
