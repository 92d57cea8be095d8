// The words in which a failure is reported to the user and to the other ranks.
#pragma once

#include <exception>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// What `error` says; for std::bad_alloc, whose text names no cause, that memory is short.
LOCKSTEP_API std::string failure_text(const std::exception& error);

}  // namespace lockstep::detail
