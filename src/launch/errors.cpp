#include <lockstep/launch/errors.h>

namespace lockstep {

Terminated::~Terminated() = default;

ProcessError::ProcessError(const ErrorParts& parts, int rank, int exit_code)
    : Error("launch", parts), rank_(rank), exit_code_(exit_code) {}

ProcessError::~ProcessError() = default;

}  // namespace lockstep
