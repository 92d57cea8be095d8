#include <lockstep/precision/precision.h>

namespace lockstep {

Precision::~Precision() = default;

}  // namespace lockstep
