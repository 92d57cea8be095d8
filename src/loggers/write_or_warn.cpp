#include "loggers/write_or_warn.h"

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

namespace lockstep::detail {
namespace {

void warn(const std::filesystem::path& place, const char* reason) {
  warn_once("loggers: " + place.string(), place.string() +
                                              " cannot be written; training goes on, and what is " +
                                              "missing is written as soon as it can be: " + reason);
}

}  // namespace

bool write_or_warn(const std::filesystem::path& place, const std::function<void()>& write) {
  try {
    write();
    return true;
  } catch (const IoError& error) {
    warn(place, error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    warn(place, error.what());
  }
  return false;
}

}  // namespace lockstep::detail
