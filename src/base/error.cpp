#include <lockstep/base/error.h>

#include <new>

#include "base/failure_text.h"

namespace lockstep {
namespace {

std::string error_text(std::string_view module, const ErrorParts& parts) {
  std::string text = "[" + std::string(module) + "] " + parts.what;
  if (!parts.expected.empty()) text += "; expected " + parts.expected;
  if (!parts.got.empty()) text += "; got " + parts.got;
  if (!parts.where.empty()) text += "; at " + parts.where;
  if (!parts.hint.empty()) text += "; " + parts.hint;
  return text;
}

}  // namespace

Error::Error(std::string_view module, const ErrorParts& parts)
    : std::runtime_error(error_text(module, parts)) {}

// Out of line, so that each class has one type_info in one library and can be caught across them.
Error::~Error() = default;
ConfigError::~ConfigError() = default;
DataError::~DataError() = default;
IoError::~IoError() = default;
CheckpointError::~CheckpointError() = default;
CommError::CommError(std::string_view module, const ErrorParts& parts, std::vector<int> ranks)
    : Error(module, parts), ranks_(std::make_shared<const std::vector<int>>(std::move(ranks))) {}
CommError::~CommError() = default;
PeerLost::~PeerLost() = default;
Timeout::~Timeout() = default;
CollectiveMismatch::~CollectiveMismatch() = default;

std::string detail::failure_text(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr) return error.what();
  return "the system has not enough memory for this process (" + std::string(error.what()) +
         "); use a smaller batch, or a strategy that shards or offloads its state";
}

}  // namespace lockstep
