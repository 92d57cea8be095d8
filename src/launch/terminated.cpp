#include <lockstep/launch/terminated.h>

namespace lockstep {

Terminated::~Terminated() = default;

}  // namespace lockstep
